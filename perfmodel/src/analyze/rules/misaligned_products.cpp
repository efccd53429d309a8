#include "analyze/rules.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"

namespace perfmodel::findings {
namespace misaligned_products {
namespace {

// NVIDIA's guide of matrix products (docs.nvidia.com, "Matrix Multiplication Background"): operands
// whose rows do not begin at 16 bytes take slower kernels.
constexpr std::int64_t kAlignedBytes = 16;
constexpr double kLeastShare = 0.02;

std::int64_t padded(std::int64_t size, std::int64_t to) { return (size + to - 1) / to * to; }

void find_misaligned_products(const StepFacts& step, const Gpu* gpu,
                              std::vector<Suspicion>& found) {
  if (!gpu) return;
  const auto misaligned = [](const KernelFact& kernel) {
    const auto* shape = kernel.work ? std::get_if<GemmShape>(&kernel.work->shape) : nullptr;
    if (!shape || !kernel.work->matrix_units || size_in_bytes(kernel.work->dtype) != 2)
      return false;
    const std::int64_t multiple = kAlignedBytes / size_in_bytes(kernel.work->dtype);
    return shape->n % multiple != 0 || shape->k % multiple != 0;
  };
  const std::vector<KernelGroup> groups = groups_of(step, misaligned);
  if (groups.empty()) return;
  // Only models of measured products know the effect of alignment.
  const auto chosen = choose_kernel_models("learned");
  if (!chosen) return;
  for (const KernelGroup& group : groups) {
    if (group.time_us < kLeastShare * step.span_us) break;
    const KernelFact& first = step.kernels[group.kernels.front()];
    const auto& shape = std::get<GemmShape>(first.work->shape);
    Suspicion made{
        .title = fmt::format("{} multiplies {} x {} x {} in {}: rows do not begin at 16 bytes",
                             short_name(first.name), shape.m, shape.n, shape.k,
                             to_string(first.work->dtype)),
        .where = step.path(first.op),
        .share_us = group.time_us,
        .advice = "Pad the sizes (vocabulary, hidden, batch) to multiples of 8, better 64"};
    for (const std::size_t i : group.kernels) {
      KernelWork aligned = *step.kernels[i].work;
      auto& sizes = std::get<GemmShape>(aligned.shape);
      sizes.n = padded(sizes.n, 8);
      sizes.k = padded(sizes.k, 8);
      const double taken = step.kernels[i].time_us;
      const double then = chosen->models.price(aligned, *gpu).time.count();
      // The models' measured products are nearly all aligned: their price of a padded one holds,
      // and a recorded kernel is compared with that. With two prices, the ratio counts.
      const double now =
          step.is_recorded ? taken : chosen->models.price(*step.kernels[i].work, *gpu).time.count();
      if (now > 0 && then < now) made.repair.kernel_us[i] = taken * then / now;
    }
    if (!made.repair.kernel_us.empty()) found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace misaligned_products

const Rule kMisalignedProducts = {
    {"misaligned-products",
     "products in half types whose n or k is no multiple of 8 take 2 % of the "
     "step"},
    misaligned_products::find_misaligned_products};

}  // namespace perfmodel::findings
