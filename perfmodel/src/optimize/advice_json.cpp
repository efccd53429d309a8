#include "advice_json.hpp"

namespace perfmodel {
namespace {

const ResultFields<AdvisedStep> kAdvisedStepFields = {
    {"rewrite", &AdvisedStep::rewrite},           {"family", &AdvisedStep::family},
    {"gain_us", &AdvisedStep::gain_us},           {"gain_share", &AdvisedStep::gain_share},
    {"error_us", &AdvisedStep::error_us},         {"within_error", &AdvisedStep::within_error},
    {"step_us", &AdvisedStep::step_us},           {"batch", &AdvisedStep::batch},
    {"memory_bytes", &AdvisedStep::needed_bytes}, {"same_numbers", &AdvisedStep::same_numbers},
    {"command", &AdvisedStep::command},           {"code", &AdvisedStep::code},
};

const ResultFields<CombinedStep> kCombinedStepFields = {
    {"rewrite", &CombinedStep::rewrite},
    {"family", &CombinedStep::family},
    {"adds_us", &CombinedStep::adds_us},
    {"adds_share", &CombinedStep::adds_share},
    {"then_us", &CombinedStep::then_us},
    {"error_us", &CombinedStep::error_us},
    {"within_error", &CombinedStep::within_error},
    {"others_need_it", &CombinedStep::others_need_it},
    {"same_numbers", &CombinedStep::same_numbers},
    {"code", &CombinedStep::code},
};

const ResultFields<LostMove> kLostMoveFields = {
    {"rewrite", &LostMove::rewrite}, {"family", &LostMove::family},   {"why", &LostMove::why},
    {"reason", &LostMove::reason},   {"step_us", &LostMove::step_us},
};

const ResultFields<TablePlanAdvice> kTablePlanFields = {
    {"plan_us", &TablePlanAdvice::plan_us}, {"replicated_us", &TablePlanAdvice::replicated_us},
    {"plan", &TablePlanAdvice::plan},       {"command", &TablePlanAdvice::command},
    {"code", &TablePlanAdvice::code},
};

const ResultFields<LayoutPlanAdvice> kLayoutPlanFields = {
    {"step_us", &LayoutPlanAdvice::step_us},
    {"memory_bytes", &LayoutPlanAdvice::memory_bytes},
    {"layout", &LayoutPlanAdvice::layout},
    {"replicated_us", &LayoutPlanAdvice::replicated_us},
    {"replicated_fits", &LayoutPlanAdvice::replicated_fits},
    {"software", &LayoutPlanAdvice::software},
    {"command", &LayoutPlanAdvice::command},
};

const ResultFields<CeilingRow> kCeilingRowFields = {
    {"what", &CeilingRow::what},
    {"alone_us", &CeilingRow::alone_us},
    {"after_us", &CeilingRow::after_us},
    {"gain_us", &CeilingRow::gain_us},
    {"gain_share", &CeilingRow::gain_share},
};

template <class Row>
auto advice_rows(std::vector<Row> Advice::*member, const ResultFields<Row>& fields) {
  return
      [member, &fields](const Advice& advice) { return json_list(advice.*member, fields, true); };
}

template <class Plan>
auto advice_plan(std::optional<Plan> Advice::*member, const ResultFields<Plan>& fields) {
  return [member, &fields](const Advice& advice) -> OrderedJson {
    if (!(advice.*member)) return nullptr;
    return json_object(*(advice.*member), fields, true);
  };
}

const ResultFields<Advice> kAdviceFields = {
    {"objective", &Advice::objective},
    {"baseline_us", &Advice::baseline_us},
    {"best_us", &Advice::best_us},
    {"best_step_us", &Advice::best_step_us},
    {"same_numbers_us", &Advice::same_numbers_us},
    {"best_error_us", &Advice::best_error_us},
    {"best_within_error", &Advice::best_within_error},
    {"baseline_batch", &Advice::baseline_batch},
    {"best_batch", &Advice::best_batch},
    {"baseline_gpus", &Advice::baseline_ranks},
    {"best_gpus", &Advice::best_ranks},
    {"memory_limit_bytes", &Advice::memory_limit_bytes},
    {"baseline_memory_bytes", &Advice::baseline_bytes},
    {"best_memory_bytes", &Advice::best_bytes},
    {"baseline_command", &Advice::baseline_command},
    {"best_command", &Advice::best_command},
    {"steps", advice_rows(&Advice::steps, kAdvisedStepFields)},
    {"combination", advice_rows(&Advice::combination, kCombinedStepFields)},
    {"ceiling",
     [](const Advice& advice) { return json_list(advice.ceiling.rows, kCeilingRowFields, true); }},
    {"ceiling_rest_us", [](const Advice& advice) { return advice.ceiling.rest_us; }},
    {"without_path_us", [](const Advice& advice) { return advice.ceiling.without_path_us; }},
    {"lost", advice_rows(&Advice::lost, kLostMoveFields)},
    {"table_plan", advice_plan(&Advice::table_plan, kTablePlanFields)},
    {"layout_plan", advice_plan(&Advice::layout_plan, kLayoutPlanFields)},
    {"evaluations", &Advice::evaluations},
    {"complete", &Advice::complete},
    {"seconds", &Advice::seconds},
    {"warnings", &Advice::warnings},
};

}  // namespace

OrderedJson advice_json(const Advice& advice) { return json_object(advice, kAdviceFields, true); }

}  // namespace perfmodel
