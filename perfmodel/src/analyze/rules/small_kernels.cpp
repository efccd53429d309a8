#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace small_kernels {
namespace {

// DeepContext: 8 kernels of 10 us on average that take 2 % of the step.
constexpr std::size_t kLeastKernels = 8;
constexpr double kMostMeanUs = 10, kLeastShare = 0.02;
// Time of a kernel that does next to nothing: fusing it saves at least this on the device.
constexpr double kEmptyKernelUs = 1.5;

// Kernels that a compiler fuses into one.
bool is_fusable(const KernelFact& kernel) {
  if (kernel.kind == DeviceKind::kSet) return true;
  if (kernel.kind != DeviceKind::kKernel) return false;
  switch (kernel.family) {
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout:
    case KernelFamily::kOptimizer:
    case KernelFamily::kSmall: return true;
    default: return false;
  }
}

using Chain = std::vector<std::size_t>;

// Small ones in a row on one stream, one chain after the other.
std::vector<Chain> chains_of(const StepFacts& step) {
  std::vector<Chain> chains;
  for (const auto& order : kernels_by_stream(step)) {
    Chain open;
    const auto close = [&] {
      if (open.size() >= kLeastKernels) chains.push_back(open);
      open.clear();
    };
    for (const std::size_t i : order) {
      if (!is_fusable(step.kernels[i]) || step.kernels[i].time_us > kMostMeanUs) {
        close();
      } else {
        open.push_back(i);
      }
    }
    close();
  }
  return chains;
}

// The innermost op or label around all of the chain.
std::int32_t common_parent(const StepFacts& step, const Chain& chain) {
  std::vector<std::int32_t> around;
  for (std::int32_t op = step.kernels[chain.front()].op; op >= 0; op = step.ops[op].parent) {
    around.push_back(op);
  }
  std::size_t level = 0;
  for (const std::size_t i : chain) {
    std::int32_t op = step.kernels[i].op;
    while (op >= 0) {
      const auto at = std::ranges::find(around, op);
      if (at != around.end()) {
        level = std::max(level, static_cast<std::size_t>(at - around.begin()));
        break;
      }
      op = step.ops[op].parent;
    }
    if (op < 0) return -1;
  }
  return level < around.size() ? around[level] : -1;
}

// One kernel and one launch remain, and the host time of one op.
void fuse(const StepFacts& step, const Chain& chain, Repair& repair) {
  double fused = 0, longest = 0;
  for (const std::size_t i : chain) {
    fused += std::max(0.0, step.kernels[i].time_us - kEmptyKernelUs);
    longest = std::max(longest, step.kernels[i].time_us);
  }
  repair.kernel_us[chain.front()] = std::max(longest, fused + kEmptyKernelUs);
  for (std::size_t place = 1; place < chain.size(); ++place) {
    repair.remove_kernel(chain[place]);
  }
}

// The first and last op of the longest chain, as no op but the step is around all of a chain.
std::string ends_of(const StepFacts& step, std::span<const Chain> chains) {
  const Chain& longest = *std::ranges::max_element(chains, {}, &Chain::size);
  const auto path = [&](std::size_t kernel) { return step.path(step.kernels[kernel].op); };
  return fmt::format("from {} to {}", path(longest.front()), path(longest.back()));
}

void find_small_kernels(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  struct Place {
    std::vector<Chain> chains;
    std::size_t kernels = 0;
    double device_us = 0, launch_us = 0;
  };
  std::map<std::string, Place> places;  // one call path: the same code, step after step
  for (Chain& chain : chains_of(step)) {
    const std::int32_t parent = common_parent(step, chain);
    const bool has_op = parent >= 0 && !step.ops[parent].name.starts_with("ProfilerStep#");
    Place& place = places[has_op ? step.path(parent) : ""];
    place.kernels += chain.size();
    for (const std::size_t i : chain) {
      place.device_us += step.kernels[i].time_us;
      place.launch_us += step.kernels[i].launch_us;
    }
    place.chains.push_back(std::move(chain));
  }
  for (auto& [path, place] : places) {
    if (place.device_us + place.launch_us < kLeastShare * step.span_us) continue;
    const double count = static_cast<double>(place.kernels) / static_cast<double>(step.steps);
    Suspicion made{
        .title =
            fmt::format("{:.0f} pointwise kernels of {:.1f} us on average per step, {} in a "
                        "row and more, launched one by one",
                        count, place.device_us / static_cast<double>(place.kernels), kLeastKernels),
        .where = path.empty() ? ends_of(step, place.chains) : path,
        .share_us = place.device_us + place.launch_us,
        .advice =
            "Fuse them: torch.compile of this part, foreach=True or fused=True for "
            "optimizers, or one hand-written kernel; `rewrite --fuse-elementwise` predicts "
            "it"};
    for (const Chain& chain : place.chains) fuse(step, chain, made.repair);
    free_ops_of_removed(step, made.repair);
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace small_kernels

const Rule kSmallKernels = {
    {"small-kernels",
     "8 pointwise kernels of 10 us or less in a row on one stream, 2 % of the step "
     "with their launches"},
    small_kernels::find_small_kernels};

}  // namespace perfmodel::findings
