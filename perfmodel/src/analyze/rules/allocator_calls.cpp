#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace allocator_calls {
namespace {

constexpr double kLeastShare = 0.02;

void find_allocator_calls(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  // Calls before all device work create the context.
  double first_work = step.span_us;
  for (const KernelFact& kernel : step.kernels) first_work = std::min(first_work, kernel.start_us);
  Suspicion made;
  bool frees = false;
  std::size_t late = 0;  // after the first step the pool should hold all that is needed
  for (std::size_t i = 0; i < step.allocator_calls.size(); ++i) {
    const AllocatorCall& call = step.allocator_calls[i];
    if (call.start_us < first_work) continue;
    made.repair.allocator_calls.insert(i);
    made.share_us += call.us;
    frees |= call.call.find("Free") != std::string_view::npos;
    late += step.steps > 1 && call.start_us >= step.step_begins_us[1];
    if (made.where.empty()) made.where = step.path(call.op);
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  const auto count = static_cast<double>(made.repair.allocator_calls.size());
  made.title =
      fmt::format("{:.0f} calls that take {}memory from the driver during the steps, {} per step",
                  count, frees ? "and give back " : "", per_step(made.share_us, step));
  // Without steps nothing tells the warm-up from the rest.
  frees = frees && step.has_marks;
  made.confidence = frees || late > 0 ? Confidence::kHigh : Confidence::kLow;
  made.advice =
      frees
          ? "The caching allocator ran out, gave its blocks back and tried again: a smaller batch, "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, no torch.cuda.empty_cache() in "
            "the loop"
          : "Record after the warm-up: the pool of the caching allocator is still growing";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace allocator_calls

const Rule kAllocatorCalls = {
    {"allocator-calls", "cudaMalloc, cudaFree and their like take 2 % of the step"},
    allocator_calls::find_allocator_calls};

}  // namespace perfmodel::findings
