#include "memory_prices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perfmodel/data_files.hpp"
#include "perfmodel/predict.hpp"
#include "rewrite_options.hpp"

namespace perfmodel::cli {
namespace {

struct Option {
  std::string_view flag, value;
};
using Options = std::vector<Option>;

/// What people do first, alone and together. Those that a graph cannot take are left out.
std::vector<Options> options_to_try(const Gpu& gpu) {
  const bool has_bf16 = gpu.peak_tflop_per_s.bf16_matrix.has_value();
  const Option autocast = {"precision", has_bf16 ? "bf16" : "fp16-scaled"};
  const Option half_model = {"precision", has_bf16 ? "bf16-o2" : "fp16-o2"};
  const Option in_place = {"in-place", "gelu+layernorm"}, dropout = {"recompute", "dropout"};
  const Option full = {"recompute", "full"}, offload = {"offload-activations", ""};
  const Option half_gradients = {"grad-dtype", has_bf16 ? "bf16" : "fp16"};
  return {
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

std::optional<Variant> variant_of(const Options& options) {
  Variant variant;
  for (const Option& option : options) {
    const RewriteOption* found = find_rewrite_option(option.flag);
    if (found == nullptr) return std::nullopt;
    auto rewrite = named_rewrite(*found, std::string(option.value));
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

}  // namespace

Result<MemoryPrices> MemoryPrices::load(const Gpu& gpu) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  MemoryPrices made;
  made.gpu_ = gpu;
  auto models = choose_kernel_models("learned");
  if (!models) return Unexpected{models.error()};
  made.models_ = std::make_shared<const ChosenKernelModels>(std::move(*models));
  auto table = OverheadTables(*data).choose("", gpu);
  if (!table) return Unexpected{table.error()};
  made.overheads_ = std::move(*table);
  return made;
}

WhatIfTarget MemoryPrices::target() const {
  return {.gpu = gpu_,
          .overheads = overheads_.table.get(),
          .options = {.models = &models_->models, .keep_ops = false}};
}

Result<MemoryPrices::Ways> MemoryPrices::ways_to_fit(const ExecutionGraph& graph) const {
  std::vector<Variant> variants = {{.name = "", .rewrites = {}}};
  for (const Options& options : options_to_try(gpu_)) {
    if (auto variant = variant_of(options)) variants.push_back(std::move(*variant));
  }
  const auto most = largest_batch(graph, gpu_);
  if (most && most->batch > 0) {
    const std::string batch = std::to_string(most->batch);
    if (auto variant = variant_of({{"batch", batch}})) variants.push_back(std::move(*variant));
  }
  const WhatIfTarget here = target();
  std::vector<WhatIfAnswer> answers = what_if(graph, variants, {&here, 1});
  if (answers[0].error) return Unexpected{*answers[0].error};
  const double alone = us_per_sample(answers[0]);
  Ways ways{.fitting = {}, .least = std::nullopt, .tried = variants.size() - 1};
  const auto consider = [&](std::string how, WhatIfAnswer answer) {
    if (answer.error) return;
    Way way{.how = std::move(how), .answer = std::move(answer)};
    way.slowdown = us_per_sample(way.answer) / alone;
    const bool less =
        !ways.least || way.answer.memory.needed_bytes() < ways.least->answer.memory.needed_bytes();
    if (less) ways.least = way;
    if (way.answer.memory.fits()) ways.fitting.push_back(std::move(way));
  };
  for (std::size_t i = 1; i < answers.size(); ++i)
    consider(variants[i].name, std::move(answers[i]));

  constexpr std::int64_t kGpusOfNode = 8;
  WhatIfTarget sharded = target();
  sharded.options.world_size = kGpusOfNode;
  sharded.options.scale_out =
      ScaleOut{.world = kGpusOfNode, .strategy = ParallelStrategy::kFsdp, .topology = nullptr};
  ++ways.tried;
  for (WhatIfAnswer& answer : what_if(graph, {variants.data(), 1}, {&sharded, 1})) {
    consider(fmt::format("FSDP on {} GPUs", kGpusOfNode), std::move(answer));
  }
  std::ranges::stable_sort(ways.fitting, {}, &Way::slowdown);
  if (!ways.fitting.empty()) ways.least.reset();
  return ways;
}

Result<OpStarts> MemoryPrices::op_starts(const ExecutionGraph& graph) const {
  WhatIfTarget here = target();
  here.options.keep_ops = true;
  const auto prediction = predict(graph, here.gpu, *here.overheads, here.options);
  if (!prediction) return Unexpected{prediction.error()};
  OpStarts starts;
  for (const PredictedOp& op : prediction->ops) starts.emplace_back(op.id, op.start_us);
  std::ranges::sort(starts);
  return starts;
}

}  // namespace perfmodel::cli
