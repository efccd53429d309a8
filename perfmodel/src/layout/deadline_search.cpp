#include "layout/deadline_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace perfmodel {
namespace {

// Node counts to try: powers of two, and three times powers of two between them.
std::vector<std::int64_t> counts_of_gpus(std::int64_t node, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t nodes = 1; nodes * node <= most; nodes *= 2) {
    counts.push_back(nodes * node);
    if (nodes >= 2 && nodes * node * 3 / 2 <= most) counts.push_back(nodes * node * 3 / 2);
  }
  return counts;
}

class DeadlineSearch {
 public:
  DeadlineSearch(const LayoutReport& report, LayoutInputs inputs,
                 const TrainingRunQuestion& question, const LayoutRunHooks& hooks)
      : report_(report), inputs_(std::move(inputs)), question_(question), hooks_(hooks) {}

  /// Counts grow twofold until one will do; then the one between the last two is tried.
  Result<std::vector<DeadlineTry>> run(const std::vector<std::int64_t>& counts) {
    std::optional<std::size_t> met;
    for (std::size_t i = 0; i < counts.size() && !met; i = i == 0 ? 1 : i + 2) {
      if (auto tried = meets(counts[i]); !tried)
        return Unexpected{tried.error()};
      else if (*tried)
        met = i;
    }
    if (met && *met >= 2) PERFMODEL_TRY_TO(meets(counts[*met - 1]));
    if (tries_.empty()) return Unexpected{last_error_};
    std::ranges::sort(tries_, {}, &DeadlineTry::gpus);
    const auto first = std::ranges::find_if(
        tries_, [](const DeadlineTry& one) { return one.run.meets_deadline(); });
    if (first == tries_.end()) return missed();
    tries_.erase(first + 1, tries_.end());
    return std::move(tries_);
  }

 private:
  // Too few GPUs for the model are no error.
  Result<bool> meets(std::int64_t gpus) {
    inputs_.world = gpus;
    auto found = search_layouts(report_, inputs_, 1, hooks_);
    if (!found) {
      if (found.error().code == ErrorCode::kCancelled) return Unexpected{found.error()};
      last_error_ = found.error();
      return false;
    }
    const RankedLayout& best = found->best.front();
    tries_.push_back({gpus, best, training_run(question_, report_.job, best)});
    return tries_.back().run.meets_deadline();
  }

  Unexpected missed() const {
    const DeadlineTry& nearest = *std::ranges::min_element(
        tries_, {}, [](const DeadlineTry& one) { return one.run.days.expected; });
    return decline(fmt::format(
        "no count of up to {} GPUs is done in {:.4g} days: the fastest found, {} GPUs, takes "
        "{:.4g} (a larger --global-batch or --world may do)",
        tries_.back().gpus, *nearest.run.deadline_days, nearest.gpus, nearest.run.days.expected));
  }

  const LayoutReport& report_;
  LayoutInputs inputs_;
  const TrainingRunQuestion& question_;
  const LayoutRunHooks& hooks_;
  std::vector<DeadlineTry> tries_;
  Error last_error_;
};

}  // namespace

Result<void> find_fewest_gpus(LayoutReport& report, LayoutInputs inputs,
                              const TrainingRunQuestion& question, const LayoutRunHooks& hooks) {
  constexpr std::int64_t kMostGpus = 1 << 16;
  PERFMODEL_TRY(tries, DeadlineSearch(report, std::move(inputs), question, hooks)
                           .run(counts_of_gpus(report.node, kMostGpus)));
  report.tries = std::move(*tries);
  const DeadlineTry& fewest = report.tries.back();
  report.gpus = fewest.gpus;
  report.layouts = {fewest.best};
  report.run = fewest.run;
  add_layout_warnings(report);
  return {};
}

}  // namespace perfmodel
