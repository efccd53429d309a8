#include "attention_kernel.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "layer_kinds.hpp"
#include "layout_names.hpp"
#include "packed_lengths.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace {

using Kernel = LayoutJob::Attention;

/// FlashAttention 1 in Triton over FlashAttention-2, on A100 and H100: chosen on the even rows of
/// MPT (distributed/fsdp_mpt_throughput.json, llm-foundry 8c8dd48) together with `layer_factor` of
/// fsdp, 1.7 x 1.06.
constexpr double kTritonFactor = 1.8;

struct KernelName {
  Kernel kernel;
  AttentionGeneration generation;
};
constexpr KernelName kGenerations[] = {
    {Kernel::kFa2, AttentionGeneration::kFa2},    {Kernel::kFa3, AttentionGeneration::kFa3},
    {Kernel::kFa4, AttentionGeneration::kFa4},    {Kernel::kCudnn, AttentionGeneration::kCudnn},
    {Kernel::kTriton, AttentionGeneration::kFa2},
};

AttentionGeneration generation_of(Kernel kernel) {
  const auto* found = std::ranges::find(kGenerations, kernel, &KernelName::kernel);
  return found == std::end(kGenerations) ? AttentionGeneration::kFramework : found->generation;
}

// In training: kernels with a paged cache serve inference.
bool has_kernel(const Gpu& gpu, AttentionGeneration generation) {
  const AttentionKernels& known = gpu.architecture.attention_kernels;
  return generation == known.framework ||
         std::ranges::any_of(known.list, [&](const AttentionKernel& one) {
           return one.name == generation && !one.paged && !one.without_mask;
         });
}

double price_us(AttentionShape shape, AttentionGeneration kernel, const StepQuestion& question) {
  const LayoutJob::Precision precision = question.job->precision;
  const DType dtype = precision == LayoutJob::Precision::kFp32   ? DType::kFloat32
                      : precision == LayoutJob::Precision::kFp16 ? DType::kFloat16
                                                                 : DType::kBFloat16;
  shape.kernel = kernel;
  const KernelWork work =
      attention_work(shape, dtype, gemm_uses_matrix_units(dtype, *question.gpu));
  return KernelModels::heuristic().price(work, *question.gpu).time.count();
}

// Documents of one length, as many as make up the tokens, in place of whole sequences: their
// squares add up to that share.
double packed_us(AttentionShape shape, double share, AttentionGeneration kernel,
                 const StepQuestion& question) {
  if (share == 1) return price_us(shape, kernel, question);
  const double tokens = static_cast<double>(shape.batch * shape.seq_q);
  shape.seq_q = shape.seq_k =
      std::max<std::int64_t>(1, std::llround(share * static_cast<double>(shape.seq_q)));
  const double documents = tokens / static_cast<double>(shape.seq_q);
  shape.batch = std::max<std::int64_t>(1, std::llround(documents));
  return price_us(shape, kernel, question) * documents / static_cast<double>(shape.batch);
}

// One rank's attention over its own tokens.
AttentionShape shape_of(const StepQuestion& question) {
  const DecoderModel& model = question.job->model;
  const ParallelLayout& layout = *question.layout;
  const bool latent = model.latent.key_value_rank > 0;
  const std::int64_t tokens = question.job->sequence / layout.cp;
  const std::int64_t heads = model.heads / layout.tp;
  return {.batch = layout.micro_batch,
          .heads = heads,
          .seq_q = tokens,
          .seq_k = tokens,
          .head_dim =
              latent ? model.latent.plain_width + model.latent.rotary_width : head_width_of(model),
          .causal = true,
          .dropout = question.job->dropout > 0,
          .kv_heads = heads};
}

// Latent attention's values are narrower than its queries and keys. Since 2025 kernels of
// FlashAttention-3 and of cuDNN have this shape on Hopper; others pad the values. On Blackwell
// NeMo's even rows take the time of padded ones (median 5.8 % off, 9.0 with narrow values).
bool takes_narrow_values(const DecoderModel& model, Kernel kernel, const Gpu& gpu) {
  const LatentAttentionSizes& of = model.latent;
  const bool is_new = (kernel == Kernel::kFa3 || kernel == Kernel::kCudnn) &&
                      has_kernel(gpu, AttentionGeneration::kFa3);
  return is_new && of.value_width > 0 && of.value_width < of.plain_width + of.rotary_width;
}

// FLOP over what heads as wide as the values need: two products forward, one of them with values;
// five backward, two of them with values. No measurement tells the rate of this shape.
double flop_over_values(const LatentAttentionSizes& of, AttentionShape::Pass pass) {
  const double wide =
      static_cast<double>(of.plain_width + of.rotary_width) / static_cast<double>(of.value_width);
  return pass == AttentionShape::Pass::kForward ? (wide + 1) / 2 : (3 * wide + 2) / 5;
}

}  // namespace

Result<void> check_attention(const Gpu& gpu, Kernel attention) {
  const AttentionGeneration asked = generation_of(attention);
  if (asked == AttentionGeneration::kFramework || has_kernel(gpu, asked)) return {};
  std::vector<std::string_view> known;
  for (const auto& [kernel, generation] : kGenerations) {
    if (has_kernel(gpu, generation)) known.push_back(to_string(kernel));
  }
  return decline(fmt::format("attention: expected a kernel that is known on {} ({}), found {}",
                             gpu.name, fmt::join(known, ", "), to_string(attention)));
}

Kernel attention_kernel(const StepQuestion& question) {
  if (question.job->attention != Kernel::kFlash) return question.job->attention;
  const Gpu& gpu = *question.gpu;
  const Kernel own = question.framework->attention;
  if (own != Kernel::kFlash && has_kernel(gpu, generation_of(own))) return own;
  const AttentionGeneration usual = gpu.architecture.attention_kernels.framework;
  for (const auto& [kernel, generation] : kGenerations) {
    if (generation == usual) return kernel;
  }
  return Kernel::kFa2;
}

bool knows_sinks(Kernel kernel) { return kernel == Kernel::kCudnn || kernel == Kernel::kFa4; }

AttentionRatios attention_ratios(const StepQuestion& question) {
  const Kernel kernel = attention_kernel(question);
  const AttentionGeneration usual = question.gpu->architecture.attention_kernels.framework;
  const double factor = kernel == Kernel::kTriton ? kTritonFactor : 1;
  const double share = slowest_packed_share(*question.job, *question.layout);
  const DecoderModel& model = question.job->model;
  const bool is_narrow = takes_narrow_values(model, kernel, *question.gpu);
  const bool is_usual = generation_of(kernel) == usual && factor == 1 && !is_narrow;
  if (kernel == Kernel::kEager || (is_usual && share == 1)) return {};
  AttentionRatios made;
  for (const auto pass : {AttentionShape::Pass::kForward, AttentionShape::Pass::kBackward}) {
    AttentionShape shape = shape_of(question);
    shape.pass = pass;
    const double framework_us = price_us(shape, AttentionGeneration::kFramework, question);
    if (is_narrow) shape.head_dim = model.latent.value_width;
    const double flop = is_narrow ? flop_over_values(model.latent, pass) : 1;
    double& ratio = pass == AttentionShape::Pass::kForward ? made.forward : made.backward;
    ratio = factor * flop * packed_us(shape, share, generation_of(kernel), question) / framework_us;
  }
  return made;
}

}  // namespace perfmodel
