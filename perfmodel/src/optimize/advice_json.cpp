#include "advice_json.hpp"

namespace perfmodel {
namespace {

const ResultFields<AdvisedStep> kAdvisedStepFields = {
    PERFMODEL_FIELDS(AdvisedStep, rewrite, family, gain_us, gain_share, error_us, within_error,
                     step_us, batch),
    {"memory_bytes", &AdvisedStep::needed_bytes},
    PERFMODEL_FIELDS(AdvisedStep, same_numbers, command, code),
};

const ResultFields<CombinedStep> kCombinedStepFields = {
    PERFMODEL_FIELDS(CombinedStep, rewrite, family, adds_us, adds_share, then_us, error_us,
                     within_error, others_need_it, same_numbers, code),
};

const ResultFields<LostMove> kLostMoveFields = {
    PERFMODEL_FIELDS(LostMove, rewrite, family, why, reason, step_us),
};

const ResultFields<TablePlanAdvice> kTablePlanFields = {
    PERFMODEL_FIELDS(TablePlanAdvice, plan_us, replicated_us, plan, command, code),
};

const ResultFields<LayoutPlanAdvice> kLayoutPlanFields = {
    PERFMODEL_FIELDS(LayoutPlanAdvice, step_us, memory_bytes, layout, replicated_us,
                     replicated_fits, software, command),
};

const ResultFields<CeilingRow> kCeilingRowFields = {
    PERFMODEL_FIELDS(CeilingRow, what, alone_us, after_us, gain_us, gain_share),
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
    PERFMODEL_FIELDS(Advice, objective, baseline_us, best_us, best_step_us, same_numbers_us,
                     best_error_us, best_within_error, baseline_batch, best_batch),
    {"baseline_gpus", &Advice::baseline_ranks},
    {"best_gpus", &Advice::best_ranks},
    {"memory_limit_bytes", &Advice::memory_limit_bytes},
    {"baseline_memory_bytes", &Advice::baseline_bytes},
    {"best_memory_bytes", &Advice::best_bytes},
    PERFMODEL_FIELDS(Advice, baseline_command, best_command),
    {"steps", advice_rows(&Advice::steps, kAdvisedStepFields)},
    {"combination", advice_rows(&Advice::combination, kCombinedStepFields)},
    {"ceiling",
     [](const Advice& advice) { return json_list(advice.ceiling.rows, kCeilingRowFields, true); }},
    {"ceiling_rest_us", [](const Advice& advice) { return advice.ceiling.rest_us; }},
    {"without_path_us", [](const Advice& advice) { return advice.ceiling.without_path_us; }},
    {"lost", advice_rows(&Advice::lost, kLostMoveFields)},
    {"table_plan", advice_plan(&Advice::table_plan, kTablePlanFields)},
    {"layout_plan", advice_plan(&Advice::layout_plan, kLayoutPlanFields)},
    PERFMODEL_FIELDS(Advice, evaluations, complete, seconds, warnings),
};

}  // namespace

OrderedJson advice_json(const Advice& advice) { return json_object(advice, kAdviceFields, true); }

}  // namespace perfmodel
