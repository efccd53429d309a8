#include "analyze/rules.hpp"

#include <array>

namespace perfmodel::findings {

std::span<const Rule> all_rules() {
  // Rules are constants of other files: they are copied at the first call, not before main.
  static const std::array rules = {kHostBound,      kSmallKernels,   kBlockingWaits,
                                   kPageableUpload, kDataLoader,     kStepGaps,
                                   kCpuOps,         kAllocatorCalls, kExposedCommunication,
                                   kSmallBuckets,   kLowParallelism, kFarBelowRoofline,
                                   kLayoutChanges,  kFp32Products,   kMisalignedProducts,
                                   kRecomputation,  kMemoryLimit};
  return rules;
}

std::string per_step(double us, const StepFacts& step) {
  const double one = us / static_cast<double>(step.steps);
  return one < 1000 ? fmt::format("{:.0f} us", one) : fmt::format("{:.2f} ms", one / 1000);
}

std::string short_name(std::string_view name) {
  constexpr std::size_t kMost = 60;
  return name.size() <= kMost ? std::string(name) : std::string(name.substr(0, kMost - 3)) + "...";
}

}  // namespace perfmodel::findings
