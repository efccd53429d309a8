#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace data_loader {
namespace {

constexpr double kLeastShare = 0.05;  // DeepContext's "input": 5 % of the iteration

void find_data_loader(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  if (step.loading_us < kLeastShare * step.span_us) return;
  Suspicion made{
      .title = fmt::format("The step waits for data for {} ({})", per_step(step.loading_us, step),
                           percent_of(step.loading_us, step)),
      .where = "enumerate(DataLoader)",
      .share_us = step.loading_us,
      .confidence = Confidence::kHigh,
      .advice =
          "More DataLoader workers, prefetch_factor, persistent_workers=True, or "
          "decode and augment on the GPU"};
  made.repair.no_loading = true;
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace data_loader

const Rule kDataLoader = {{"data-loader", "the step waits for the data loader for 5 % or more"},
                          data_loader::find_data_loader};

}  // namespace perfmodel::findings
