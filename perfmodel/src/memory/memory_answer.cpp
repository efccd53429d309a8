#include "memory/memory_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/contains.hpp"
#include "base/file_name.hpp"
#include "base/model_source.hpp"
#include "bytes_per_sample.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/predict.hpp"
#include "rewrite/resize/seeds.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/rewrite_input.hpp"

namespace perfmodel {
namespace {

/// Models and tables that price steps on a GPU.
struct StepPrices {
  Gpu gpu;
  ChosenKernelModels models;
  ChosenOverheads overheads;

  WhatIfTarget target() const {
    return {.gpu = gpu,
            .overheads = overheads.table.get(),
            .options = {.models = &models.models, .keep_ops = false, .step_range = false}};
  }
};

Result<StepPrices> load_prices(const Gpu& gpu) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(models, choose_kernel_models("learned"));
  PERFMODEL_TRY(table, OverheadTables(*data).choose("", gpu));
  return StepPrices{gpu, std::move(*models), std::move(*table)};
}

// When each top-level op begins on the host.
Result<OpStarts> op_starts(const StepPrices& prices, const ExecutionGraph& graph) {
  WhatIfTarget here = prices.target();
  here.options.keep_ops = true;
  PERFMODEL_TRY(prediction, predict(graph, here.gpu, *here.overheads, here.options));
  OpStarts starts;
  for (const PredictedOp& op : prediction->ops) starts.emplace_back(op.id, op.start_us);
  std::ranges::sort(starts);
  return starts;
}

// Ops whose tensors are not counted.
std::string uncounted_text(const MemoryReport& report) {
  constexpr std::size_t kNamed = 5;
  const auto& names = report.without_sizes;
  const std::size_t more = names.size() - std::min(kNamed, names.size());
  return fmt::format(
      "tensors of {}{} have no storage or no size in the graph: they are in the upper bound alone",
      fmt::join(std::span(names).first(names.size() - more), ", "),
      more > 0 ? fmt::format(" and {} more ops", more) : "");
}

// Adds the cost of each way to fit, on one GPU, and the times of ops.
Result<void> add_prices(const MemoryQuestion& question, const RewriteByName& rewrite_by_name,
                        MemoryAnswer& made) {
  const bool lacks = made.gpu && !made.report.memory.fits() && question.zero.world == 1;
  const bool wants_times = made.gpu && question.over_time;
  if (!lacks && !wants_times) return {};
  PERFMODEL_TRY(prices, load_prices(*made.gpu));
  if (lacks) {
    PERFMODEL_TRY(ways,
                  ways_to_fit(prices->target(), made.graph, made.report.memory, rewrite_by_name));
    made.ways = std::move(*ways);
  }
  if (wants_times) {
    PERFMODEL_TRY(starts, op_starts(*prices, made.graph));
    made.op_starts = std::move(*starts);
  }
  return {};
}

// A captured graph for no GPU is taken for one of NVIDIA's, and says so.
Result<ExecutionGraph> rewrite_program(const MemoryQuestion& question, const ExecutionGraph& source,
                                       const std::optional<Gpu>& gpu) {
  if (!is_to_retarget(source)) return rewrite_input(source, question.rewrites);
  ExecutionGraph graph = source;
  PERFMODEL_TRY(done,
                retarget_for(gpu.value_or(Gpu{.vendor = "nvidia"}), graph, question.rewrites));
  return rewrite_input(graph, question.rewrites);
}

}  // namespace

Result<MemoryAnswer> answer_memory(const MemoryQuestion& question, const ExecutionGraph& source,
                                   std::optional<Gpu> gpu, const RewriteByName& rewrite_by_name) {
  MemoryAnswer made{.graph_file = file_name(question.graph), .gpu = std::move(gpu)};
  // A known model is built again with another batch, which its warning names.
  if (!is_known_model(source)) made.warnings = source.warnings;
  const auto in_file = [&](Error error) {
    error.file = question.graph;
    return Unexpected{std::move(error)};
  };
  auto graph = rewrite_program(question, source, made.gpu);
  if (!graph) return in_file(graph.error());
  made.graph = std::move(*graph);
  add_each_once(made.warnings, made.graph.warnings);
  if (made.gpu) {
    std::vector<std::string> first = stand_ins(*made.gpu);
    add_each_once(first, lacking_attention(made.graph, *made.gpu));
    made.warnings.insert(made.warnings.begin(), first.begin(), first.end());
  }
  made.rewrites = rewrite_names(question.rewrites);
  made.zero = question.zero;
  made.report = memory_report(made.graph, made.gpu ? &*made.gpu : nullptr,
                              {.largest = question.largest,
                               .curve = question.over_time,
                               .expandable_segments = question.expandable_segments,
                               .zero = made.zero});
  if (!made.report.without_sizes.empty()) made.warnings.push_back(uncounted_text(made.report));
  if (const auto twice = resize::twice_the_batch(made.graph)) {
    made.batch = twice->batch;
    if (twice->graph) {
      made.bytes_per_sample = bytes_per_sample(made.graph, *twice->graph, twice->batch);
    }
  }
  if (question.max_batch) {
    auto most = largest_batch(made.graph, *made.gpu, question.expandable_segments, made.zero);
    if (!most) return in_file(most.error());
    made.most = std::move(*most);
  }
  if (auto priced = add_prices(question, rewrite_by_name, made); !priced)
    return in_file(priced.error());
  put_captured_first(made.warnings);
  return made;
}

}  // namespace perfmodel
