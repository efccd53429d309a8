#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace memory_limit {
namespace {

constexpr double kFull = 0.9;  // share of the driver's memory: fragmentation needs the rest

void find_memory_limit(const StepFacts& step, const Gpu* gpu, std::vector<Suspicion>& found) {
  if (!step.peak_memory_bytes || !step.device_memory_bytes || !gpu) return;
  const double used = *step.peak_memory_bytes / *step.device_memory_bytes;
  if (used < kFull) return;
  constexpr double kGib = 1024.0 * 1024 * 1024;
  found.push_back(
      {.title =
           fmt::format("{:.1f} of {:.1f} GiB of the GPU's memory are taken at the peak ({:.0f} "
                       "%){}",
                       *step.peak_memory_bytes / kGib, *step.device_memory_bytes / kGib, 100 * used,
                       used > 1 ? ": the step does not fit" : ""),
       .where = "peak of the step",
       .confidence = Confidence::kHigh,
       .advice = "`memory` tells what holds it and the cheapest ways to fit: a smaller batch, "
                 "recomputation, an optimizer with less state, sharding",
       .costs_time = false});
}

}  // namespace
}  // namespace memory_limit

const Rule kMemoryLimit = {
    {"memory-limit", "the peak takes 90 % of the GPU's memory or more (costs no time by itself)"},
    memory_limit::find_memory_limit};

}  // namespace perfmodel::findings
