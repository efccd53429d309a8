#include "rewrite_moves.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/enum_name.hpp"
#include "perfmodel/detail/check.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel::advice {
namespace {

constexpr std::uint64_t kCollectives = Touch::of(KernelFamily::kCollective);
constexpr std::uint64_t kCompute = Touch::kAllFamilies & ~kCollectives;
constexpr std::uint64_t kProducts =
    Touch::of(KernelFamily::kGemm) | Touch::of(KernelFamily::kConvolution) |
    Touch::of(KernelFamily::kGroupedGemm) | Touch::of(KernelFamily::kRecurrent);
constexpr std::uint64_t kMoved = Touch::of(KernelFamily::kElementwise) |
                                 Touch::of(KernelFamily::kCopy) | Touch::of(KernelFamily::kSet) |
                                 Touch::of(KernelFamily::kSmall);
constexpr Touch kHostWork{.host = true, .optimizer_host = true};

// `text` as `perfpredict rewrite` takes it: "--batch 1024".
Choice choice(std::string text, std::string code) {
  const std::size_t flag_end = std::min(text.find(' '), text.size());
  const RewriteOption* option = find_rewrite_option(std::string_view(text).substr(0, flag_end));
  PERFMODEL_CHECK(option != nullptr);
  auto rewrite = option->parse(flag_end < text.size() ? text.substr(flag_end + 1) : "");
  PERFMODEL_CHECK(rewrite.has_value());
  Choice made{.text = std::move(text), .code = std::move(code)};
  made.rewrite = NamedRewrite{.name = made.text, .apply = std::move(*rewrite)};
  return made;
}

Axis batch_axis(std::int64_t batch) {
  constexpr std::int64_t kMostTimes = 1024;
  Axis axis{.family = "batch", .stage = Stage::kBatch, .is_ladder = true};
  for (std::int64_t times = 2; times <= kMostTimes; times *= 2) {
    const std::int64_t wanted = times * batch;
    Choice made{.text = fmt::format("--batch {}", wanted),
                .code = fmt::format("DataLoader(dataset, batch_size={})", wanted)};
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

// SGD alone keeps what the step computes.
Axis tables_axis() {
  Axis axis{.family = "tables", .stage = Stage::kTables};
  axis.choices.push_back(
      choice("--fuse-tables sgd",
             "fbgemm_gpu SplitTableBatchedEmbeddingBagsCodegen(tables, optimizer=EXACT_SGD) in the "
             "place of nn.EmbeddingBag"));
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
  const char* code;
  DType type;
};

const NamedPrecision kPrecisions[] = {
    {"bf16", "with torch.autocast(\"cuda\", dtype=torch.bfloat16):\n    loss = model(batch)",
     DType::kBFloat16},
    {"fp16-scaled",
     "with torch.autocast(\"cuda\", dtype=torch.float16):\n    loss = model(batch)\n"
     "scaler.scale(loss).backward()  # scaler = torch.amp.GradScaler()\n"
     "scaler.step(optimizer)\nscaler.update()",
     DType::kFloat16},
    {"bf16-o2",
     "model.to(torch.bfloat16)  # with an optimizer that keeps fp32 weights (DeepSpeed, Apex O2)",
     DType::kBFloat16},
    {"fp16-o2",
     "model.half()  # with a loss scale and an optimizer that keeps fp32 weights (DeepSpeed, Apex "
     "O2)",
     DType::kFloat16},
    {"fp8",
     "with transformer_engine.pytorch.fp8_autocast():  # te.Linear in the place of nn.Linear\n"
     "    loss = model(batch)",
     DType::kFloat8},
};

Axis precision_axis(const Gpu& gpu) {
  Axis axis{.family = "precision", .stage = Stage::kPrecision};
  if (gpu.peak_tflop_per_s.tf32_matrix) {
    axis.choices.push_back(choice("--precision tf32",
                                  "torch.backends.cuda.matmul.allow_tf32 = True\n"
                                  "torch.backends.cudnn.allow_tf32 = True"));
  }
  for (const NamedPrecision& one : kPrecisions) {
    axis.choices.push_back(choice(fmt::format("--precision {}", one.name), one.code));
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
  axis.choices.push_back(choice("--channels-last",
                                "model = model.to(memory_format=torch.channels_last)\n"
                                "images = images.to(memory_format=torch.channels_last)"));
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis attention_axis(const Gpu& gpu) {
  Axis axis{.family = "attention", .stage = Stage::kAttention};
  const auto add = [&](const std::string& kernel, std::string code) {
    axis.choices.push_back(choice("--attention " + kernel, std::move(code)));
    axis.choices.back().lacks = lacks_attention(kernel, gpu);
  };
  constexpr const char* kAttend =
      "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # encoders: attn_mask=mask";
  constexpr const char* kTransformers =
      "from_pretrained(name, attn_implementation=\"sdpa\")  # Hugging Face transformers";
  add("flash", fmt::format("{}\n{}", kAttend, kTransformers));
  const auto chosen = [&](const char* backend) {
    return fmt::format("with torch.nn.attention.sdpa_kernel(SDPBackend.{}_ATTENTION):\n    {}\n{}",
                       backend, kAttend, kTransformers);
  };
  add("efficient", chosen("EFFICIENT"));
  add("cudnn", chosen("CUDNN"));
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis loss_axis() {
  Axis axis{.family = "loss", .stage = Stage::kFusedLayers};
  axis.choices = {
      choice("--fuse-loss liger",
             "from liger_kernel.transformers import LigerCrossEntropyLoss\n"
             "loss = LigerCrossEntropyLoss()(logits, labels)"),
      choice("--fuse-loss linear",
             "from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss\n"
             "loss = LigerFusedLinearCrossEntropyLoss()(lm_head.weight, hidden, labels)")};
  axis.touch = {.host = true, .families = kCompute};
  return axis;
}

Axis norms_axis() {
  Axis axis{.family = "norms", .stage = Stage::kFusedLayers};
  axis.choices = {
      choice("--fuse-norms",
             "self.norm = torch.nn.RMSNorm(hidden, eps=eps)  # torch.nn.LayerNorm of layer norms")};
  axis.touch = {.host = true, .families = kCompute & ~kProducts};
  return axis;
}

Axis in_place_axis() {
  Axis axis{.family = "in-place", .stage = Stage::kInPlace, .frees_memory = true};
  for (const char* kept : {"gelu", "layernorm", "gelu,layernorm"}) {
    axis.choices.push_back(
        choice(fmt::format("--in-place {}", kept),
               fmt::format("Tempo's in-place {} in the place of PyTorch's", kept)));
  }
  return axis;
}

Axis checkpoint_axis() {
  Axis axis{.family = "checkpoint", .stage = Stage::kRecompute, .frees_memory = true};
  axis.choices = {
      choice("--recompute dropout",
             "Tempo's attention, which drops out again in its backward pass"),
      choice("--recompute selective", "torch.utils.checkpoint.checkpoint(core_attention, q, k, v)"),
      choice("--recompute op",
             "torch.utils.checkpoint.checkpoint(layer, x, context_fn=every second mm)"),
      choice("--recompute full", "torch.utils.checkpoint.checkpoint(layer, x) for every layer"),
      choice("--checkpoint 0",
             "torch.utils.checkpoint.checkpoint_sequential(layers, round(sqrt(len(layers))), x)")};
  return axis;
}

Axis offload_axis() {
  Axis axis{.family = "offload", .stage = Stage::kOffload, .frees_memory = true};
  axis.choices.push_back(
      choice("--offload-activations",
             "with torchtune.training.OffloadActivations(): loss = model(batch)"));
  return axis;
}

// Larger graphs take a good part of a second each, and a search asks for dozens.
constexpr std::size_t kMostNodesOfPasses = 100'000;
constexpr std::int64_t kMostPasses = 64;

// The same samples in several passes. Where more samples count, passes beyond the memory share one
// update and one reduction: no more than these take is gained.
Axis accumulation_axis(const Job& job, AdviceObjective objective) {
  Axis axis{.family = "accumulation", .stage = Stage::kAccumulate};
  axis.frees_memory = objective == AdviceObjective::kStep;
  axis.touch.optimizer_host = true;
  axis.touch.families = kCollectives;
  axis.touch.optimizer_families = Touch::kAllFamilies;
  for (std::int64_t passes = 2; passes <= kMostPasses; passes *= 2) {
    if (static_cast<std::size_t>(passes) * job.nodes > kMostNodesOfPasses) break;
    if (objective == AdviceObjective::kStep && *job.batch % passes != 0) break;
    axis.choices.push_back(
        {.text = fmt::format("--accumulate {}", passes),
         .code = fmt::format("(loss / {0}).backward() for each of {0} parts of the batch, then "
                             "optimizer.step() (DDP: model.no_sync() around all but the last)",
                             passes),
         .passes = passes,
         .same_numbers = !job.batch_statistics});
  }
  return axis;
}

Axis optimizer_axis(const Job& job) {
  Axis axis{.family = "optimizer", .stage = Stage::kOptimizer};
  for (const char* how : {"foreach", "fused"}) {
    axis.choices.push_back(
        choice(fmt::format("--optimizer {}", how),
               fmt::format("optimizer = torch.optim.{}(model.parameters(), {}=True)",
                           job.optimizer.empty() ? "SGD" : job.optimizer, how)));
  }
  if (job.optimizer.starts_with("Adam")) {
    axis.choices.push_back(
        choice("--optimizer 8bit", "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())"));
    axis.choices.back().same_numbers = false;
  }
  axis.touch = {.optimizer_host = true, .optimizer_families = Touch::kAllFamilies};
  return axis;
}

// MiB; DDP has 25.
constexpr double kBucketsBelow[] = {1, 1.5, 2, 3, 4, 6, 8, 12, 16, 20};
constexpr double kBucketsAbove[] = {32,  40,  50,  64,  80,  100,  128,  160,
                                    200, 256, 320, 400, 800, 1600, 3200, 6400};

Axis buckets_axis() {
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel, .is_ladder = true};
  const auto add = [&](double mib) {
    axis.choices.push_back(
        {.text = fmt::format("bucket_cap_mb={:g}", mib),
         .code = fmt::format("DistributedDataParallel(model, bucket_cap_mb={:g})", mib),
         .bucket_mib = mib});
  };
  for (double mib : kBucketsBelow) add(mib);
  axis.below = axis.choices.size();
  for (double mib : kBucketsAbove) add(mib);
  axis.touch = kHostWork;
  axis.touch.families = kCollectives;
  return axis;
}

// Of the largest gradient a half, a quarter, ... down to what no link is slow at.
Axis split_axis(double largest_bytes) {
  constexpr double kLeastMib = 1;
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel, .is_ladder = true};
  std::vector<double> sizes;
  for (double mib = largest_bytes / (1 << 20) / 2; mib >= kLeastMib; mib /= 2) {
    sizes.push_back(std::ceil(100 * mib) / 100);
  }
  std::ranges::reverse(sizes);
  for (double mib : sizes) {
    axis.choices.push_back({.text = fmt::format("split={:g}", mib),
                            .code = fmt::format("hold parameters above {:g} MiB in pieces "
                                                "(nn.ParameterList): DDP reduces each as it comes",
                                                mib),
                            .split_mib = mib});
  }
  axis.below = axis.choices.size();
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  return axis;
}

Axis views_axis() {
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel};
  axis.choices.push_back({.text = "gradient_as_bucket_view",
                          .code = "DistributedDataParallel(model, gradient_as_bucket_view=True)"});
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  axis.touch.optimizer_families = kMoved;
  return axis;
}

Axis ranks_axis(std::int64_t world) {
  Axis axis{.family = "ranks", .stage = Stage::kDataParallel, .is_ladder = true};
  std::vector<std::int64_t> fewer;
  for (std::int64_t ranks = world / 2; ranks >= 1; ranks /= 2) fewer.push_back(ranks);
  std::ranges::reverse(fewer);
  for (std::int64_t ranks : fewer) {
    axis.choices.push_back({.text = fmt::format("{} GPUs", ranks),
                            .code = fmt::format("torchrun --nproc-per-node {}", ranks),
                            .ranks = ranks,
                            .same_numbers = false});
  }
  axis.below = axis.choices.size();
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  return axis;
}

Axis fusion_axis() {
  Axis axis{.family = "fusion", .stage = Stage::kFusion};
  axis.choices.push_back(choice("--fuse-elementwise",
                                "torch.compile of the functions between products: bias and GELU, "
                                "dropout and residual"));
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

std::string compiled_model(const char* mode) {
  return fmt::format("model = torch.compile(model{})  # whose forward returns the loss", mode);
}

Axis compile_axis() {
  Axis axis{.family = "compile", .stage = Stage::kFusion};
  axis.choices = {
      choice("--compile default", compiled_model("")),
      choice("--compile reduce-overhead", compiled_model(", mode=\"reduce-overhead\""))};
  axis.touch = {.host = true, .optimizer_host = true, .families = kCompute};
  return axis;
}

// The ops of a trace can only be launched otherwise.
Axis launch_axis(bool graphs, bool compile_trace) {
  Axis axis{.family = compile_trace ? "compile" : "cuda-graphs", .stage = Stage::kLaunch};
  if (graphs) {
    axis.choices.push_back(
        launching("--cuda-graphs",
                  "with torch.cuda.graph(g):\n    train_step()\ng.replay()  # for every batch"));
  }
  if (compile_trace) axis.choices.push_back(launching("--compiled", compiled_model("")));
  axis.touch = kHostWork;
  return axis;
}

struct Family {
  const char* name;
  /// Empty: the family makes sense; else why not.
  std::string (*contradiction)(const Job& job, AdviceObjective objective);
};

std::string none(const Job&, AdviceObjective) { return {}; }

const Family kFamilyRows[] = {
    {"batch",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (objective == AdviceObjective::kStep) {
         return "another batch changes the samples that the objective step keeps (samples-per-s "
                "allows it)";
       }
       return job.batch ? "" : "the inputs of the graph do not tell its batch";
     }},
    {"tables", none},
    {"precision", none},
    {"channels-last", none},
    {"attention", none},
    {"loss", none},
    {"norms", none},
    {"in-place", none},
    {"checkpoint", none},
    {"offload", none},
    {"accumulation",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (!job.batch) return "the inputs of the graph do not tell its batch";
       const bool divides = objective != AdviceObjective::kStep || *job.batch % 2 == 0;
       return divides ? "" : fmt::format("a batch of {} cannot be halved", *job.batch);
     }},
    {"optimizer", none},
    {"buckets",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank reduces no gradients (--world N runs N)";
     }},
    {"ranks",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (job.world <= 1) return "one rank is the least (--world N runs N)";
       return objective == AdviceObjective::kSamplesPerGpuHour
                  ? ""
                  : "fewer GPUs help the objective samples-per-gpu-hour alone";
     }},
    {"sharding",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank holds all tables (--world N runs N)";
     }},
    {"layout",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank has one layout (--world N runs N)";
     }},
    {"fusion", none},
    {"cuda-graphs", none},
    {"compile", none},
};

Result<std::vector<std::string>> allowed_families(const Job& job, const OptimizeOptions& options) {
  std::vector<std::string> allowed;
  for (const Family& family : kFamilyRows) {
    // Graphs of many passes take most of a search for larger batches: there it has to be named.
    const bool left_out = options.objective != AdviceObjective::kStep &&
                          std::string_view(family.name) == "accumulation";
    if (options.allow.empty() && !left_out &&
        family.contradiction(job, options.objective).empty()) {
      allowed.emplace_back(family.name);
    }
  }
  for (const std::string& name : options.allow) {
    const auto* known = std::ranges::find(kFamilyRows, name, &Family::name);
    if (known == std::end(kFamilyRows)) {
      return fail(ErrorCode::kUnknownName, fmt::format("allow: expected some of {}, found \"{}\"",
                                                       fmt::join(advice_families(), ", "), name));
    }
    const std::string why = known->contradiction(job, options.objective);
    if (!why.empty()) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("allow: expected no \"{}\" with objective {} on {} {}: {}", name,
                              to_string(options.objective), job.world,
                              job.world == 1 ? "rank" : "ranks", why));
    }
    allowed.push_back(name);
  }
  return allowed;
}

}  // namespace

Result<std::vector<Axis>> rewrite_axes(const Gpu& gpu, const Job& job,
                                       const OptimizeOptions& options) {
  const auto allowed = allowed_families(job, options);
  if (!allowed) return Unexpected{allowed.error()};
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
  if (has("buckets")) axes.push_back(buckets_axis());
  if (has("buckets")) axes.push_back(split_axis(job.largest_gradient_bytes));
  if (has("buckets")) axes.push_back(views_axis());
  if (has("ranks")) axes.push_back(ranks_axis(job.world));
  if (has("fusion") && !has("compile")) axes.push_back(fusion_axis());
  if (has("compile") && !job.from_trace) axes.push_back(compile_axis());
  const bool compile_trace = has("compile") && job.from_trace;
  if (has("cuda-graphs") || compile_trace) {
    axes.push_back(launch_axis(has("cuda-graphs"), compile_trace));
  }
  return axes;
}

std::int64_t ranks_of(const std::vector<Axis>& axes, const State& state, const Job& job) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (state[i] > 0 && axes[i].choices[state[i] - 1U].ranks > 0) {
      return axes[i].choices[state[i] - 1U].ranks;
    }
  }
  return job.world;
}

namespace {

NamedRewrite data_parallel(const std::vector<Axis>& axes, const State& state, std::int64_t world) {
  DataParallelRewrite how{.world_size = world};
  std::string name = fmt::format("--data-parallel {}", world);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].stage != Stage::kDataParallel || state[i] == 0) continue;
    const Choice& chosen = axes[i].choices[state[i] - 1U];
    if (chosen.ranks > 0) continue;
    if (chosen.bucket_mib > 0) {
      // A cap that the user sets holds for the first bucket, too (bucket_limits.hpp).
      name += fmt::format(",cap={0:g},first={0:g}", chosen.bucket_mib);
      how.bucket_cap_bytes = how.first_bucket_bytes =
          static_cast<std::int64_t>(std::llround(chosen.bucket_mib * (1 << 20)));
    } else if (chosen.split_mib > 0) {
      name += fmt::format(",split={:g}", chosen.split_mib);
      how.split_bytes = static_cast<std::int64_t>(std::llround(chosen.split_mib * (1 << 20)));
    } else {
      how.gradient_as_bucket_view = true;
    }
  }
  if (how.gradient_as_bucket_view) name += ",views";
  return {.name = std::move(name), .apply = [how](const ExecutionGraph& graph) {
            return rewrite_data_parallel(graph, how);
          }};
}

struct Samples {
  std::int64_t step = 0, passes = 1;
};

Samples samples_of(const std::vector<Axis>& axes, const State& state, const Job& job) {
  Samples made{.step = job.batch.value_or(0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (state[i] == 0) continue;
    const Choice& chosen = axes[i].choices[state[i] - 1U];
    if (chosen.batch > 0) made.step = chosen.batch;
    if (chosen.passes > 0) made.passes = chosen.passes;
  }
  return made;
}

NamedRewrite batch_per_pass(const Samples& samples) {
  const std::int64_t batch = samples.step / samples.passes;
  return {.name = fmt::format("--batch {}", batch),
          .apply = [samples, batch](const ExecutionGraph& graph) -> Result<ExecutionGraph> {
            if (samples.step % samples.passes != 0) {
              return fail(ErrorCode::kImpossible,
                          fmt::format("{} samples do not divide into {} passes", samples.step,
                                      samples.passes));
            }
            return set_batch_size(graph, {.batch = batch});
          }};
}

NamedRewrite accumulation(std::int64_t passes) {
  return {.name = fmt::format("--accumulate {}", passes),
          .apply = [passes](const ExecutionGraph& graph) {
            return rewrite_accumulation(graph, passes);
          }};
}

}  // namespace

std::string choice_text(const std::vector<Axis>& axes, const State& state, std::size_t axis,
                        const Job& job) {
  const Choice& chosen = axes[axis].choices[state[axis] - 1U];
  if (chosen.passes > 0) {
    const Samples samples = samples_of(axes, state, job);
    return batch_per_pass(samples).name + " " + chosen.text;
  }
  if (chosen.rewrite) return chosen.text;
  State alone(axes.size(), 0);
  alone[axis] = state[axis];
  const auto rewrites = rewrites_of(axes, alone, job);
  return rewrites.empty() ? "(one GPU: no --data-parallel)" : rewrites.front().name;
}

std::vector<NamedRewrite> rewrites_of(const std::vector<Axis>& axes, const State& state,
                                      const Job& job) {
  const std::int64_t world = ranks_of(axes, state, job);
  const Samples samples = samples_of(axes, state, job);
  std::vector<NamedRewrite> rewrites;
  const auto add_stage = [&](Stage stage) {
    if (samples.passes > 1 && stage == Stage::kBatch) {
      if (samples.step != samples.passes * *job.batch) rewrites.push_back(batch_per_pass(samples));
      return;
    }
    if (samples.passes > 1 && stage == Stage::kAccumulate) {
      rewrites.push_back(accumulation(samples.passes));
      return;
    }
    if (stage == Stage::kDataParallel) {
      if (world > 1) rewrites.push_back(data_parallel(axes, state, world));
      return;
    }
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (state[i] == 0 || axes[i].stage != stage) continue;
      rewrites.push_back(*axes[i].choices[state[i] - 1U].rewrite);
    }
  };
  for (int stage = 0; stage <= static_cast<int>(Stage::kLaunch); ++stage) {
    add_stage(static_cast<Stage>(stage));
  }
  return rewrites;
}

}  // namespace perfmodel::advice

namespace perfmodel {

const std::vector<std::string>& advice_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const advice::Family& family : advice::kFamilyRows) made.emplace_back(family.name);
    return made;
  }();
  return names;
}

std::string_view to_string(AdviceObjective objective) {
  static constexpr std::string_view kNames[] = {"step", "samples-per-s", "samples-per-gpu-hour"};
  return enum_name(kNames, objective);
}

Result<AdviceObjective> advice_objective(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto one : {AdviceObjective::kStep, AdviceObjective::kSamplesPerS,
                         AdviceObjective::kSamplesPerGpuHour}) {
    if (to_string(one) == name) return one;
    names.push_back(to_string(one));
  }
  return fail(ErrorCode::kUnknownName, fmt::format("objective: expected one of {}, found \"{}\"",
                                                   fmt::join(names, ", "), name));
}

std::string_view to_string(LostMove::Why why) {
  static constexpr std::string_view kNames[] = {"refused", "lacks units", "slower", "too large",
                                                "cannot gain"};
  return enum_name(kNames, why);
}

}  // namespace perfmodel
