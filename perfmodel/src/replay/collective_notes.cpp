#include "collective_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "record/match_collectives.hpp"

namespace perfmodel {
namespace {

struct Known {
  CollectiveShape shape;
  double in_bytes = 0, out_bytes = 0;
  std::string process_group;
};

// Collectives of the graph, in the order of their start.
std::vector<Known> collectives_in_order(const ExecutionGraph& graph) {
  const Gpu any;  // a collective moves the same bytes on every GPU
  Lowering lowering(graph, any, nullptr);
  std::vector<Known> found;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.comm < 0) continue;
    for (const KernelWork& work : lowering.lower(static_cast<std::int32_t>(i)).work) {
      const auto* shape = std::get_if<CollectiveShape>(&work.shape);
      if (!shape) continue;
      found.push_back({.shape = *shape,
                       .in_bytes = work.bytes_read.value,
                       .out_bytes = work.bytes_written.value,
                       .process_group = graph.comm_records[node.comm].process_group});
    }
  }
  // A single group contains all ranks, whatever each of them calls it.
  const auto other = [&](const Known& at) { return at.process_group != found[0].process_group; };
  if (std::ranges::none_of(found, other)) {
    for (Known& at : found) at.process_group.clear();
  }
  return found;
}

// Kernels of collectives, in the order of their launches.
std::vector<std::size_t> kernels_of(const Trace& trace) {
  std::vector<std::size_t> kernels;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.kind == GpuKind::kKernel && event.launch >= 0 &&
        is_collective_kernel(trace.name(event))) {
      kernels.push_back(i);
    }
  }
  std::ranges::stable_sort(kernels, {},
                           [&](std::size_t i) { return trace.host[trace.gpu[i].launch].start_ns; });
  return kernels;
}

}  // namespace

Result<std::size_t> note_collectives(const ExecutionGraph& graph, Trace& trace) {
  const std::vector<Known> known = collectives_in_order(graph);
  const std::vector<std::size_t> kernels = kernels_of(trace);
  const auto mismatch = [&](std::string found) {
    return decline(fmt::format("expected the collectives of {}, found {}",
                               std::filesystem::path(graph.source).filename().string(), found),
                   trace.source);
  };
  if (known.empty() ? !kernels.empty() : kernels.size() % known.size() != 0) {
    return mismatch(
        fmt::format("{} kernels for {} in the graph's step", kernels.size(), known.size()));
  }
  std::size_t given = 0;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const Known& from = known[k % known.size()];
    GpuEvent& event = trace.gpu[kernels[k]];
    const std::string kind = canonical_collective(trace.name(event));
    if (kind != canonical_collective(from.shape.kind) && kind != "collective") {
      return mismatch(fmt::format("\"{}\" for a collective of kind {}, number {} of the step",
                                  trace.name(event), from.shape.kind, k % known.size()));
    }
    if (event.collective < 0) {
      event.collective = static_cast<std::int32_t>(trace.collectives.size());
      trace.collectives.push_back({.kind = trace.names.intern(from.shape.kind),
                                   .process_group = trace.names.intern(from.process_group)});
    }
    CollectiveNote& note = trace.collectives[event.collective];
    if (note.in_elements > 0 || note.out_elements > 0) continue;
    note.dtype = trace.names.intern("Byte");
    note.in_elements = static_cast<std::int64_t>(from.in_bytes);
    note.out_elements = static_cast<std::int64_t>(from.out_bytes);
    if (note.group_size <= 0) note.group_size = from.shape.world_size;
    ++given;
  }
  return given;
}

}  // namespace perfmodel
