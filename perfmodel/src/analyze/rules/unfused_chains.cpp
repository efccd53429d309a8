#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace unfused_chains {
namespace {

constexpr double kLeastShare = 0.05;  // of the step, saved

// Inductor puts these into one kernel of Triton.
bool is_fusable(const KernelFact& kernel) {
  if (kernel.kind != DeviceKind::kKernel || !kernel.work) return false;
  switch (kernel.family) {
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout:
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
    case KernelFamily::kReduction:
    case KernelFamily::kTranspose:
      return true;
    default:
      return false;
  }
}

// Bytes that a kernel need not read, and the one before it need not write, if both are one. A
// kernel that writes less than half of what it reads is a reduction: others read its input too, so
// that the write stays.
struct Saved {
  double read = 0, written = 0;
};
Saved saved_between(const KernelWork& before, const KernelWork& after) {
  const double handed = std::min(before.bytes_written.value, after.bytes_read.value);
  const bool streams = 2 * after.bytes_written.value >= handed;
  return {.read = handed, .written = streams ? handed : 0};
}

// Kernels take time by the bytes that they move.
double fused_us(const StepFacts& step, std::span<const std::size_t> chain) {
  double us = 0;
  for (std::size_t place = 0; place < chain.size(); ++place) {
    const KernelFact& kernel = step.kernels[chain[place]];
    const double bytes = kernel.work->bytes().value;
    double saved = 0;
    if (place > 0) saved += saved_between(*step.kernels[chain[place - 1]].work, *kernel.work).read;
    if (place + 1 < chain.size()) {
      saved += saved_between(*kernel.work, *step.kernels[chain[place + 1]].work).written;
    }
    us += bytes > 0 ? kernel.time_us * (1 - std::min(saved / bytes, 1.0)) : kernel.time_us;
  }
  return us;
}

void find_unfused_chains(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  Suspicion made;
  std::size_t chains = 0, kernels = 0;
  double saved_us = 0, most_us = 0;
  const auto add = [&](std::span<const std::size_t> chain) {
    if (chain.size() < 2) return;
    double us = 0;
    for (const std::size_t i : chain) us += step.kernels[i].time_us;
    for (const std::size_t i : chain.subspan(1)) made.repair.remove_kernel(i);
    made.repair.kernel_us[chain.front()] = fused_us(step, chain);
    made.share_us += us;
    saved_us += us - made.repair.kernel_us[chain.front()];
    ++chains;
    kernels += chain.size();
    if (us <= most_us) return;
    most_us = us;
    made.where = step.path(step.kernels[chain.front()].op);
  };
  for (const auto& order : kernels_by_stream(step)) {
    std::size_t first = 0;
    for (std::size_t place = 0; place <= order.size(); ++place) {
      if (place < order.size() && is_fusable(step.kernels[order[place]])) continue;
      add(std::span(order).subspan(first, place - first));
      first = place + 1;
    }
  }
  if (saved_us < kLeastShare * step.span_us) return;
  free_ops_of_removed(step, made.repair);
  const auto steps = static_cast<double>(step.steps);
  made.title = fmt::format(
      "{:.0f} kernels per step in {:.0f} chains (pointwise, norms, softmax, reductions) hand each "
      "other tensors through memory, {}",
      static_cast<double>(kernels) / steps, static_cast<double>(chains) / steps,
      per_step(made.share_us, step));
  made.confidence = Confidence::kMedium;
  made.advice =
      "model = torch.compile(model) makes one kernel of each chain. The gain counts with "
      "what one hands the next staying on the chip; `--compile default` predicts it";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace unfused_chains

const Rule kUnfusedChains = {
    {"unfused-chains",
     "pointwise kernels, norms, softmaxes and reductions in a row on one stream would take 5 % of "
     "the step less as one kernel each"},
    unfused_chains::find_unfused_chains};

}  // namespace perfmodel::findings
