#include "data_parallel_graph.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "perfmodel/graph/rewrites/training.hpp"
#include "record/match_collectives.hpp"

namespace perfmodel {
namespace {

bool reduces(const CommRecord& record) {
  const std::string& name = record.collective;
  if (name == "wait" || name == "init" || name == "end" || name.starts_with("barrier")) {
    return false;
  }
  const std::string kind = canonical_collective(name);
  return kind == "all_reduce" || kind == "reduce_scatter" || kind == "collective";
}

bool is_below_record(const ExecutionGraph& graph, const Node& node) {
  const auto is_record = [&](std::int32_t i) { return graph.node(i).comm >= 0; };
  return graph.find_around(node.parent, is_record) >= 0;
}

std::int64_t whole_bytes(double limit) {
  constexpr auto kMost = static_cast<double>(std::int64_t{1} << 60);
  return static_cast<std::int64_t>(std::clamp(std::ceil(limit), 1.0, kMost));
}

double reduced_bytes(const ExecutionGraph& graph) {
  double bytes = 0;
  for (const Node& node : graph.nodes) {
    if (node.comm < 0 || !reduces(graph.comm_records[node.comm])) {
      continue;
    }
    for_each_tensor(graph, graph.inputs(node),
                    [&](const Tensor& tensor) { bytes += static_cast<double>(tensor.bytes()); });
  }
  return bytes;
}

}  // namespace

bool reduces_gradients(const ExecutionGraph& graph, const LoweringFacts& facts) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.comm >= 0) {
      if (reduces(graph.comm_records[node.comm])) return true;
      continue;
    }
    const LaunchTemplate* calls = facts.nodes[i].found.calls;
    const bool by_template = calls && std::ranges::any_of(*calls, &TemplateCall::collective);
    if (by_template && !is_below_record(graph, node)) return true;  // unknown kind
  }
  return false;
}

Result<DataParallelGraph> make_data_parallel_graph(const ExecutionGraph& graph,
                                                   const ScaleOut& how) {
  DataParallelGraph made;
  PERFMODEL_TRY(rewritten, rewrite_data_parallel(
                               graph,
                               {.world_size = how.world,
                                .first_bucket_bytes = whole_bytes(how.ddp.first_bucket_bytes),
                                .bucket_cap_bytes = whole_bytes(how.ddp.bucket_cap_bytes),
                                .gradient_as_bucket_view = !how.ddp_copies_gradients,
                                .delayed = how.ddp.delayed},
                               &made.copies));
  made.graph = std::move(*rewritten);
  const auto steps = static_cast<double>(std::max<std::size_t>(1, iterations(made.graph).size()));
  made.gradient_bytes = reduced_bytes(made.graph) / steps;
  return made;
}

KernelTimes times_of_copies(const KernelTimes& times, const DataParallelGraph& made) {
  KernelTimes moved;
  moved.source = times.source;
  moved.other_gpu = times.other_gpu;
  for (std::size_t i = 0; i < made.copies.size(); ++i) {
    if (made.copies[i] < 0) continue;
    for (std::uint32_t ordinal = 0;; ++ordinal) {
      const KernelTimes::Time* time = times.find(static_cast<std::int32_t>(i), ordinal);
      if (!time) break;
      moved.add(made.copies[i], ordinal, time->us, time->collective, time->input_bytes);
    }
  }
  return moved;
}

std::size_t fused_updates(const ExecutionGraph& graph) {
  const auto steps = iterations(graph);
  if (steps.empty()) return 0;
  std::size_t count = 0;
  for (std::int32_t i = steps.front().begin; i < steps.front().end; ++i) {
    const std::string_view name = graph.name(i);
    const bool lookup = name.find("SplitLookupFunction_") != std::string_view::npos ||
                        name.find("SplitNoBagLookupFunction_") != std::string_view::npos;
    const bool dense = name.find("Function_Dense") != std::string_view::npos;
    count += lookup && !dense && !name.starts_with("autograd::engine");
  }
  return count;
}

}  // namespace perfmodel
