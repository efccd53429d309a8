#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace unfused_chains {
namespace {

constexpr double kLeastShare = 0.05;  // saved share of the step

// Inductor puts these into one kernel of Triton.
bool is_fusable(const KernelFact& kernel) {
  if (kernel.kind != DeviceKind::kKernel || !kernel.work) return false;
  switch (kernel.family) {
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout:
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
    case KernelFamily::kReduction:
    case KernelFamily::kTranspose: return true;
    default: return false;
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

/// The chains of one optimizer, or of all else.
struct Chains {
  std::size_t count = 0, kernels = 0;
  double us = 0, saved_us = 0, longest_us = 0;
  std::string where = {};  ///< the longest one
  Repair repair = {};

  void add(const StepFacts& step, std::span<const std::size_t> chain) {
    double chain_us = 0;
    for (const std::size_t i : chain) chain_us += step.kernels[i].time_us;
    for (const std::size_t i : chain.subspan(1)) repair.remove_kernel(i);
    repair.kernel_us[chain.front()] = fused_us(step, chain);
    us += chain_us;
    saved_us += chain_us - repair.kernel_us[chain.front()];
    ++count;
    kernels += chain.size();
    if (chain_us <= longest_us) return;
    longest_us = chain_us;
    where = step.path(step.kernels[chain.front()].op);
  }
};

using ChainsByOptimizer = std::map<std::string_view, Chains>;  // "": the model and its loss

ChainsByOptimizer find_chains(const StepFacts& step) {
  ChainsByOptimizer chains;
  for (const auto& order : kernels_by_stream(step)) {
    const auto optimizer = [&](std::size_t place) {
      return step.optimizer_around(step.kernels[order[place]].op);
    };
    for (std::size_t first = 0; first < order.size();) {
      std::size_t end = first;
      while (end < order.size() && is_fusable(step.kernels[order[end]]) &&
             optimizer(end) == optimizer(first)) {
        ++end;
      }
      if (end - first > 1) {
        chains[optimizer(first)].add(step, std::span(order).subspan(first, end - first));
      }
      first = std::max(end, first + 1);
    }
  }
  return chains;
}

// torch.compile(model) leaves the optimizer as it is.
std::string advice_for(std::string_view optimizer) {
  constexpr std::string_view kBasis =
      "The gain counts with what one hands the next staying on the chip";
  if (optimizer.empty()) {
    return fmt::format(
        "model = torch.compile(model) makes one kernel of each chain. {}; `--compile "
        "default` predicts it",
        kBasis);
  }
  for (const std::string_view fused : {"Adam", "AdamW", "SGD"}) {
    if (optimizer != fused) continue;
    return fmt::format(
        "optimizer = torch.optim.{}(model.parameters(), fused=True) makes one kernel "
        "of each chain. {}; `--optimizer fused` predicts it",
        optimizer, kBasis);
  }
  return fmt::format(
      "step = torch.compile(optimizer.step), called in the place of optimizer.step(), "
      "makes one kernel of each chain. {}; `--compile default,step` predicts it",
      kBasis);
}

void find_unfused_chains(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  const auto steps = static_cast<double>(step.steps);
  for (auto& [optimizer, chains] : find_chains(step)) {
    if (chains.saved_us < kLeastShare * step.span_us) continue;
    free_ops_of_removed(step, chains.repair);
    found.push_back(
        {.title = fmt::format(
             "{:.0f} kernels per step in {:.0f} chains {}hand each other tensors through memory, "
             "{}",
             static_cast<double>(chains.kernels) / steps, static_cast<double>(chains.count) / steps,
             optimizer.empty() ? std::string("(pointwise, norms, softmax, reductions) ")
                               : fmt::format("of the optimizer {} ", optimizer),
             per_step(chains.us, step)),
         .where = chains.where,
         .share_us = chains.us,
         .repair = std::move(chains.repair),
         .confidence = Confidence::kMedium,
         .advice = advice_for(optimizer)});
  }
}

}  // namespace
}  // namespace unfused_chains

const Rule kUnfusedChains = {
    {"unfused-chains",
     "pointwise kernels, norms, softmaxes and reductions in a row on one stream would take 5 % of "
     "the step less as one kernel each"},
    unfused_chains::find_unfused_chains};

}  // namespace perfmodel::findings
