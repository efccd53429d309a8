#include "rewrite_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "advice_families.hpp"
#include "data_parallel_moves.hpp"
#include "move_touches.hpp"
#include "perfmodel/detail/check.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "pytorch_lines.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel::advice {
namespace {

// `text` as `perfpredict rewrite` takes it: "--batch 1024". `values`: for its lines of PyTorch.
template <class... Values>
Choice choice(const std::string& text, const Values&... values) {
  const std::size_t flag_end = std::min(text.find(' '), text.size());
  const RewriteOption* option = find_rewrite_option(std::string_view(text).substr(0, flag_end));
  PERFMODEL_CHECK(option != nullptr);
  auto rewrite = option->parse(flag_end < text.size() ? text.substr(flag_end + 1) : "");
  PERFMODEL_CHECK(rewrite.has_value());
  Choice made{.text = text, .code = pytorch_lines(text, values...)};
  made.rewrite = NamedRewrite{.name = made.text, .apply = std::move(*rewrite)};
  return made;
}

Axis batch_axis(std::int64_t batch) {
  constexpr std::int64_t kMostTimes = 1024;
  Axis axis{.family = "batch", .stage = Stage::kBatch, .is_ladder = true};
  for (std::int64_t times = 2; times <= kMostTimes; times *= 2) {
    const std::int64_t wanted = times * batch;
    Choice made{.text = fmt::format("--batch {}", wanted),
                .code = pytorch_lines("--batch", wanted)};
    made.rewrite = NamedRewrite{.name = made.text, .apply = [wanted](const ExecutionGraph& graph) {
                                  return set_batch_size(graph, {.batch = wanted});
                                }};
    made.batch = wanted;
    made.same_numbers = false;
    axis.choices.push_back(std::move(made));
  }
  axis.touch = {.host = true,
                .optimizer_host = true,
                .families = Touch::kAllFamilies,
                .optimizer_families = Touch::kAllFamilies};
  return axis;
}

// Only SGD computes the same step.
Axis tables_axis() {
  Axis axis{.family = "tables", .stage = Stage::kTables};
  axis.choices.push_back(choice("--fuse-tables sgd"));
  axis.touch = kHostWork;
  axis.touch.families = kCompute & ~kProducts;
  axis.touch.optimizer_families = kCompute;
  return axis;
}

bool has_units_for(DType dtype, const Gpu& gpu) {
  const Gpu::Peaks& peaks = gpu.peak_tflop_per_s;
  if (dtype == DType::kBFloat16) return peaks.bf16 || peaks.bf16_matrix;
  return has_matrix_units(dtype, gpu);
}

struct NamedPrecision {
  const char* name;
  DType type;
};
constexpr NamedPrecision kPrecisions[] = {{"bf16", DType::kBFloat16},
                                          {"fp16-scaled", DType::kFloat16},
                                          {"bf16-o2", DType::kBFloat16},
                                          {"fp16-o2", DType::kFloat16},
                                          {"fp8", DType::kFloat8}};

Axis precision_axis(const Gpu& gpu) {
  Axis axis{.family = "precision", .stage = Stage::kPrecision};
  if (gpu.peak_tflop_per_s.tf32_matrix) {
    axis.choices.push_back(choice("--precision tf32"));
  }
  for (const NamedPrecision& one : kPrecisions) {
    axis.choices.push_back(choice(fmt::format("--precision {}", one.name)));
    if (has_units_for(one.type, gpu)) continue;
    axis.choices.back().lacks =
        fmt::format("{} has no units for {}", gpu.name, to_string(one.type));
  }
  for (Choice& one : axis.choices) one.same_numbers = false;
  axis.touch = {.families = Touch::kAllFamilies, .optimizer_families = Touch::kAllFamilies};
  return axis;
}

Axis channels_last_axis() {
  Axis axis{.family = "channels-last", .stage = Stage::kMemoryFormat};
  axis.choices.push_back(choice("--channels-last"));
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis attention_axis(const Gpu& gpu) {
  Axis axis{.family = "attention", .stage = Stage::kAttention};
  const auto add = [&](const std::string& kernel, const std::string& chosen) {
    axis.choices.push_back(choice("--attention " + kernel, chosen));
    axis.choices.back().lacks = lacks_attention(kernel, gpu);
  };
  add("flash", "");
  add("efficient", pytorch_lines("sdpa_kernel", "EFFICIENT"));
  add("cudnn", pytorch_lines("sdpa_kernel", "CUDNN"));
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis loss_axis() {
  Axis axis{.family = "loss", .stage = Stage::kFusedLayers};
  axis.choices = {choice("--fuse-loss liger"), choice("--fuse-loss linear")};
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis norms_axis() {
  Axis axis{.family = "norms", .stage = Stage::kFusedLayers};
  axis.choices = {choice("--fuse-norms")};
  axis.touch = {.host = true, .families = kCompute & ~kProducts};
  return axis;
}

Axis in_place_axis() {
  Axis axis{.family = "in-place", .stage = Stage::kInPlace, .frees_memory = true};
  for (const char* kept : {"gelu", "layernorm", "gelu,layernorm"}) {
    axis.choices.push_back(choice(fmt::format("--in-place {}", kept), kept));
  }
  return axis;
}

Axis checkpoint_axis() {
  Axis axis{.family = "checkpoint", .stage = Stage::kRecompute, .frees_memory = true};
  axis.choices = {choice("--recompute dropout"), choice("--recompute selective"),
                  choice("--recompute op"), choice("--recompute full"), choice("--checkpoint 0")};
  return axis;
}

Axis offload_axis() {
  Axis axis{.family = "offload", .stage = Stage::kOffload, .frees_memory = true};
  axis.choices.push_back(choice("--offload-activations"));
  return axis;
}

// Larger graphs take a good part of a second each, and a search asks for dozens.
constexpr std::size_t kMostNodesOfPasses = 100'000;
constexpr std::int64_t kMostPasses = 64;

// The same samples in several passes. If more samples count, passes beyond the memory share one
// update and one reduction: the gain is at most the time of these.
Axis accumulation_axis(const Job& job, AdviceObjective objective) {
  Axis axis{.family = "accumulation", .stage = Stage::kAccumulate};
  axis.frees_memory = objective == AdviceObjective::kStep;
  axis.touch.optimizer_host = true;
  axis.touch.families = kCollectives;
  axis.touch.optimizer_families = Touch::kAllFamilies;
  for (std::int64_t passes = 2; passes <= kMostPasses; passes *= 2) {
    if (static_cast<std::size_t>(passes) * job.nodes > kMostNodesOfPasses) break;
    if (objective == AdviceObjective::kStep && *job.batch % passes != 0) break;
    axis.choices.push_back({.text = fmt::format("--accumulate {}", passes),
                            .code = pytorch_lines("--accumulate", passes),
                            .passes = passes,
                            .same_numbers = !job.batch_statistics});
  }
  return axis;
}

Axis optimizer_axis(const Job& job) {
  Axis axis{.family = "optimizer", .stage = Stage::kOptimizer};
  for (const char* how : {"foreach", "fused"}) {
    axis.choices.push_back(choice(fmt::format("--optimizer {}", how),
                                  job.optimizer.empty() ? "SGD" : job.optimizer, how));
  }
  if (job.optimizer.starts_with("Adam")) {
    axis.choices.push_back(choice("--optimizer 8bit"));
    axis.choices.back().same_numbers = false;
  }
  axis.touch = {.optimizer_host = true, .optimizer_families = Touch::kAllFamilies};
  return axis;
}

Axis fusion_axis() {
  Axis axis{.family = "fusion", .stage = Stage::kFusion};
  axis.choices.push_back(choice("--fuse-elementwise"));
  axis.touch = kHostWork;
  axis.touch.families = kMoved | Touch::of(KernelFamily::kDropout);
  axis.touch.optimizer_families = kMoved;
  return axis;
}

Choice launching(const char* flag, std::string code) {
  const RewriteOption* option = find_rewrite_option(flag);
  PERFMODEL_CHECK(option && option->launching);
  return {.text = flag, .code = std::move(code), .rewrite = named_rewrite(*option, "").value()};
}

Axis compile_axis() {
  Axis axis{.family = "compile", .stage = Stage::kFusion};
  axis.choices = {choice("--compile default", ""),
                  choice("--compile reduce-overhead", ", mode=\"reduce-overhead\"")};
  axis.touch = {.host = true, .optimizer_host = true, .families = kCompute};
  return axis;
}

// The ops of a trace can only be launched otherwise.
Axis launch_axis(bool graphs, bool compile_trace) {
  Axis axis{.family = compile_trace ? "compile" : "cuda-graphs", .stage = Stage::kLaunch};
  if (graphs) {
    axis.choices.push_back(launching("--cuda-graphs", pytorch_lines("--cuda-graphs")));
  }
  if (compile_trace) {
    axis.choices.push_back(launching("--compiled", pytorch_lines("--compile", "")));
  }
  axis.touch = kHostWork;
  return axis;
}

}  // namespace

Result<std::vector<Axis>> rewrite_axes(const Gpu& gpu, const Job& job,
                                       const OptimizeOptions& options) {
  PERFMODEL_TRY(allowed, allowed_families(job, options));
  const auto has = [&](std::string_view name) {
    return std::ranges::find(*allowed, name) != allowed->end();
  };
  std::vector<Axis> axes;
  if (has("batch")) axes.push_back(batch_axis(*job.batch));
  if (has("tables")) axes.push_back(tables_axis());
  if (has("precision")) axes.push_back(precision_axis(gpu));
  if (has("channels-last")) axes.push_back(channels_last_axis());
  if (has("attention")) axes.push_back(attention_axis(gpu));
  if (has("loss")) axes.push_back(loss_axis());
  if (has("norms")) axes.push_back(norms_axis());
  if (has("in-place")) axes.push_back(in_place_axis());
  if (has("checkpoint")) axes.push_back(checkpoint_axis());
  if (has("offload")) axes.push_back(offload_axis());
  if (has("accumulation")) axes.push_back(accumulation_axis(job, options.objective));
  if (has("optimizer")) axes.push_back(optimizer_axis(job));
  if (has("buckets")) std::ranges::move(bucket_axes(job), std::back_inserter(axes));
  if (has("ranks")) axes.push_back(ranks_axis(job.world));
  if (has("fusion") && !has("compile")) axes.push_back(fusion_axis());
  if (has("compile") && !job.from_trace) axes.push_back(compile_axis());
  const bool compile_trace = has("compile") && job.from_trace;
  if (has("cuda-graphs") || compile_trace) {
    axes.push_back(launch_axis(has("cuda-graphs"), compile_trace));
  }
  return axes;
}

}  // namespace perfmodel::advice
