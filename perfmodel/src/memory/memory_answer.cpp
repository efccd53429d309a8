#include "memory/memory_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/contains.hpp"
#include "base/file_name.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/predict.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/rewrite_input.hpp"

namespace perfmodel {
namespace {

struct FitOption {
  std::string_view name, value;
};
using FitOptions = std::vector<FitOption>;

/// Options that people try first, alone and together. Options that a graph cannot take are left
/// out.
std::vector<FitOptions> options_to_try(const Gpu& gpu) {
  const bool has_bf16 = gpu.peak_tflop_per_s.bf16_matrix.has_value();
  const FitOption autocast = {"precision", has_bf16 ? "bf16" : "fp16-scaled"};
  const FitOption half_model = {"precision", has_bf16 ? "bf16-o2" : "fp16-o2"};
  const FitOption in_place = {"in-place", "gelu+layernorm"}, dropout = {"recompute", "dropout"};
  const FitOption full = {"recompute", "full"}, offload = {"offload-activations", "on"};
  const FitOption half_gradients = {"grad-dtype", has_bf16 ? "bf16" : "fp16"};
  const FitOption attention = {"attention",
                               lacks_attention("flash", gpu).empty() ? "flash" : "efficient"};
  const FitOption loss = {"fuse-loss", "linear"};
  return {
      {attention},
      {loss},
      {attention, loss},
      {autocast, attention},
      {autocast, attention, loss},
      {{"optimizer", "fused"}},
      {{"optimizer", "8bit"}},
      {half_gradients},
      {in_place},
      {dropout},
      {in_place, dropout},
      {{"recompute", "selective"}},
      {full},
      {autocast},
      {half_model},
      {offload},
      {autocast, offload},
      {autocast, full},
      {half_model, full},
  };
}

std::optional<Variant> variant_of(const FitOptions& options, const RewriteByName& rewrite_by_name) {
  Variant variant;
  for (const FitOption& option : options) {
    auto rewrite = rewrite_by_name(std::string(option.name), std::string(option.value));
    if (!rewrite) return std::nullopt;
    variant.name += (variant.name.empty() ? "" : " ") + rewrite->name;
    variant.rewrites.push_back(std::move(*rewrite));
  }
  return variant;
}

double us_per_sample(const WhatIfAnswer& answer) {
  const double samples = static_cast<double>(answer.batch.value_or(1));
  return answer.e2e_us / samples;
}

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
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto models = choose_kernel_models("learned");
  if (!models) return Unexpected{models.error()};
  auto table = OverheadTables(*data).choose("", gpu);
  if (!table) return Unexpected{table.error()};
  return StepPrices{gpu, std::move(*models), std::move(*table)};
}

// Tries memory options, alone and together, a smaller batch, and FSDP on the GPUs of a node.
Result<WaysToFit> ways_to_fit(const StepPrices& prices, const ExecutionGraph& graph,
                              const RewriteByName& rewrite_by_name) {
  std::vector<Variant> variants = {{.name = "", .rewrites = {}}};
  for (const FitOptions& options : options_to_try(prices.gpu)) {
    if (auto variant = variant_of(options, rewrite_by_name))
      variants.push_back(std::move(*variant));
  }
  const auto most = largest_batch(graph, prices.gpu);
  if (most && most->batch > 0) {
    const std::string batch = std::to_string(most->batch);
    if (auto variant = variant_of({{"batch", batch}}, rewrite_by_name))
      variants.push_back(std::move(*variant));
  }
  const WhatIfTarget here = prices.target();
  const std::span as_is(variants.data(), 1), changed = std::span(variants).subspan(1);
  const WhatIfAnswer unchanged = std::move(what_if(graph, as_is, {&here, 1})[0]);
  if (unchanged.error) return Unexpected{*unchanged.error};
  const double alone = us_per_sample(unchanged);
  WaysToFit ways{.fitting = {}, .least = std::nullopt, .tried = variants.size() - 1};
  const auto consider = [&](std::string how, WhatIfAnswer answer) {
    if (answer.error) return;
    WayToFit way{.how = std::move(how), .answer = std::move(answer)};
    way.slowdown = us_per_sample(way.answer) / alone;
    const bool less =
        !ways.least || way.answer.memory.needed_bytes() < ways.least->answer.memory.needed_bytes();
    if (less) ways.least = way;
    if (way.answer.memory.fits()) ways.fitting.push_back(std::move(way));
  };
  auto answers = what_if(graph, changed, {&here, 1}, {.only_fitting = true});
  for (std::size_t i = 0; i < answers.size(); ++i) consider(changed[i].name, std::move(answers[i]));

  constexpr std::int64_t kGpusOfNode = 8;
  WhatIfTarget sharded = here;
  sharded.options.world_size = kGpusOfNode;
  sharded.options.scale_out =
      ScaleOut{.world = kGpusOfNode, .strategy = ParallelStrategy::kFsdp, .topology = nullptr};
  ++ways.tried;
  for (WhatIfAnswer& answer : what_if(graph, as_is, {&sharded, 1})) {
    consider(fmt::format("FSDP on {} GPUs", kGpusOfNode), std::move(answer));
  }
  std::ranges::stable_sort(ways.fitting, {}, &WayToFit::slowdown);
  if (!ways.fitting.empty()) ways.least.reset();
  return ways;
}

// When each top-level op begins on the host.
Result<OpStarts> op_starts(const StepPrices& prices, const ExecutionGraph& graph) {
  WhatIfTarget here = prices.target();
  here.options.keep_ops = true;
  const auto prediction = predict(graph, here.gpu, *here.overheads, here.options);
  if (!prediction) return Unexpected{prediction.error()};
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
  auto prices = load_prices(*made.gpu);
  if (!prices) return Unexpected{prices.error()};
  if (lacks) {
    auto ways = ways_to_fit(*prices, made.graph, rewrite_by_name);
    if (!ways) return Unexpected{ways.error()};
    made.ways = std::move(*ways);
  }
  if (wants_times) {
    auto starts = op_starts(*prices, made.graph);
    if (!starts) return Unexpected{starts.error()};
    made.op_starts = std::move(*starts);
  }
  return {};
}

// A captured graph for no GPU is taken for one of NVIDIA's, and says so.
Result<ExecutionGraph> rewrite_program(const MemoryQuestion& question, const ExecutionGraph& source,
                                       const std::optional<Gpu>& gpu) {
  if (!is_to_retarget(source)) return rewrite_input(source, question.rewrites);
  ExecutionGraph graph = source;
  auto done = retarget_for(gpu.value_or(Gpu{.vendor = "nvidia"}), graph, question.rewrites);
  if (!done) return Unexpected{done.error()};
  return rewrite_input(graph, question.rewrites);
}

}  // namespace

Result<MemoryAnswer> answer_memory(const MemoryQuestion& question, const ExecutionGraph& source,
                                   std::optional<Gpu> gpu, const RewriteByName& rewrite_by_name) {
  MemoryAnswer made{
      .graph_file = file_name(question.graph), .gpu = std::move(gpu), .warnings = source.warnings};
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
  if (const auto batch = batch_size(made.graph)) made.batch = *batch;
  if (const auto bytes = bytes_per_sample(made.graph)) made.bytes_per_sample = *bytes;
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
