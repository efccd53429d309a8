#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace fp32_products {
namespace {

constexpr double kLeastShare = 0.05;
constexpr double kReachable = 0.6;  // share of the half type's peak that large products reach

// By its shapes' type, else by its name: cuBLAS calls plain fp32 "sgemm".
bool is_fp32(const KernelFact& kernel) {
  const bool products =
      kernel.family == KernelFamily::kGemm || kernel.family == KernelFamily::kConvolution;
  if (kernel.kind != DeviceKind::kKernel || !products) return false;
  for (const std::string_view half :
       {"bf16", "f16", "h884", "h1688", "h16816", "s1688", "s16816", "tf32", "half", "fp16"}) {
    if (kernel.name.find(half) != std::string_view::npos) return false;
  }
  if (kernel.work) return kernel.work->dtype == DType::kFloat32 && !kernel.work->matrix_units;
  return kernel.name.find("sgemm") != std::string_view::npos;
}

void find_fp32_products(const StepFacts& step, const Gpu* gpu, std::vector<Suspicion>& found) {
  if (!gpu) return;
  const bool has_bf16 = gpu->peak_tflop_per_s.bf16_matrix.has_value();
  if (!has_bf16 && !gpu->peak_tflop_per_s.fp16_matrix) return;
  const DType half = has_bf16 ? DType::kBFloat16 : DType::kFloat16;
  const double faster = gpu->peak(half, true).value / gpu->peak(DType::kFloat32, false).value;
  if (faster < 2) return;
  Suspicion made;
  double longest = 0;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (!is_fp32(kernel)) continue;
    made.share_us += kernel.time_us;
    double least = 2;
    if (kernel.work) {
      least =
          std::max({least, kernel.work->flop.value / gpu->peak(half, true).value / kReachable * 1e6,
                    kernel.work->bytes().value / 2 / gpu->dram_bandwidth.value * 1e6});
    }
    const double repaired = std::max(least, kernel.time_us / faster);
    if (repaired < kernel.time_us) made.repair.kernel_us[i] = repaired;
    if (kernel.time_us <= longest) continue;
    longest = kernel.time_us;
    made.where = step.path(kernel.op);
  }
  if (made.share_us < kLeastShare * step.span_us || made.repair.kernel_us.empty()) return;
  made.title = fmt::format(
      "Products and convolutions in fp32 take {} on a GPU whose matrix units "
      "do {} {:.0f} times as fast",
      percent_of(made.share_us, step), to_string(half), faster);
  made.confidence = Confidence::kMedium;
  made.advice = fmt::format(
      "torch.autocast(\"cuda\", dtype=torch.{}){}; it changes the numbers, so check the loss. The "
      "casts that it adds are not counted: `predict --precision` predicts them",
      has_bf16 ? "bfloat16" : "float16",
      gpu->peak_tflop_per_s.tf32_matrix
          ? ", or torch.set_float32_matmul_precision(\"high\") for TF32"
          : "");
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace fp32_products

const Rule kFp32Products = {
    {"fp32-products",
     "products in fp32 on vector units take 5 % of the step on a GPU whose matrix "
     "units are twice as fast in a half type or more"},
    fp32_products::find_fp32_products};

}  // namespace perfmodel::findings
