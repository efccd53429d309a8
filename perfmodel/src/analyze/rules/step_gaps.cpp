#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace step_gaps {
namespace {

constexpr double kLeastShare = 0.05;
constexpr double kEdge = 0.15;  // share of a step, before its end and after its begin

// How far a moment is from the nearest border between steps, of a step.
double distance_to_border(const StepFacts& step, double at_us) {
  const double length = step.span_us / static_cast<double>(step.steps);
  double nearest = step.span_us - at_us;
  for (const double begin : step.step_begins_us) {
    const double distance = at_us - begin;
    nearest = std::min(nearest, distance < 0 ? -distance : distance);
  }
  return length > 0 ? nearest / length : 1;
}

void find_step_gaps(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  if (!step.has_marks) return;  // begin and end of a recording are no step's
  Suspicion made;
  for (std::size_t i = 0; i < step.gaps.size(); ++i) {
    const GapFact& gap = step.gaps[i];
    if (std::min(distance_to_border(step, gap.start_us),
                 distance_to_border(step, gap.start_us + gap.us)) > kEdge) {
      continue;
    }
    made.repair.gaps.insert(i);
    made.share_us += gap.us;
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  made.title = fmt::format("The host calls no op for {} per step where steps end and begin",
                           per_step(made.share_us, step));
  made.where = "between steps";
  made.confidence = Confidence::kMedium;
  made.advice =
      "Move logging, metrics, checkpoints and schedules out of the loop or into another thread";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace step_gaps

const Rule kStepGaps = {
    {"step-gaps", "no op runs on the host for 5 % of the step around its end (traces)"},
    step_gaps::find_step_gaps};

}  // namespace perfmodel::findings
