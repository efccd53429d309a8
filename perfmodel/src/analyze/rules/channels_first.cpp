#include "analyze/rules.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"

namespace perfmodel::findings {
namespace channels_first {
namespace {

constexpr double kLeastShare = 0.02;  // saved share of the step

bool is_transpose_of_images(const KernelFact& kernel) {
  return kernel.name.find("nchwToNhwc") != std::string_view::npos ||
         kernel.name.find("nhwcToNchw") != std::string_view::npos;
}

// A recorded convolution that cuDNN transposes for has kernels that say so. Else two prices of one
// model tell how much faster the other layout is.
void find_channels_first(const StepFacts& step, const Gpu* gpu, std::vector<Suspicion>& found) {
  const std::set<std::int32_t> ops = channels_first_convolutions(step);
  if (!gpu || ops.empty()) return;
  const auto chosen = choose_kernel_models("learned");
  if (!chosen) return;
  std::set<std::int32_t> transposed;
  Suspicion made;
  double saved_us = 0, longest = 0;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (!is_transpose_of_images(kernel) || !ops.contains(kernel.op)) continue;
    transposed.insert(kernel.op);
    made.repair.remove_kernel(i);
    made.share_us += kernel.time_us;
    saved_us += kernel.time_us;
  }
  std::size_t convolutions = 0;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (!is_channels_first(kernel)) continue;
    ++convolutions;
    made.share_us += kernel.time_us;
    if (kernel.time_us > longest) {
      longest = kernel.time_us;
      made.where = step.path(kernel.op);
    }
    if (transposed.contains(kernel.op)) continue;
    KernelWork last = *kernel.work;
    std::get<ConvolutionShape>(last.shape).channels_last = true;
    const double now = chosen->models.price(*kernel.work, *gpu).time.count();
    const double then = chosen->models.price(last, *gpu).time.count();
    if (!(now > 0) || then >= now) continue;
    made.repair.kernel_us[i] = kernel.time_us * then / now;
    saved_us += kernel.time_us * (1 - then / now);
  }
  if (saved_us < kLeastShare * step.span_us) return;
  const auto steps = static_cast<double>(step.steps);
  const std::string transposes =
      transposed.empty() ? ""
                         : fmt::format(", with {:.0f} transposes around them",
                                       static_cast<double>(made.repair.launches.size()) / steps);
  made.title = fmt::format(
      "{:.0f} convolutions per step in half precision read images channels-first (NCHW), {}{}",
      static_cast<double>(convolutions) / steps, per_step(made.share_us, step), transposes);
  made.confidence = Confidence::kMedium;
  made.advice =
      "model = model.to(memory_format=torch.channels_last), and the same of its images: matrix "
      "units read NHWC. Norms and pooling change too, which the gain does not count; `rewrite "
      "--channels-last` predicts it";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace channels_first

const Rule kChannelsFirst = {
    {"channels-first",
     "convolutions in half types that read images as NCHW would take 2 % of the step less with "
     "NHWC"},
    channels_first::find_channels_first};

}  // namespace perfmodel::findings
