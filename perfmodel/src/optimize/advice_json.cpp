#include "advice_json.hpp"

#include <string>

namespace perfmodel {
namespace {

OrderedJson steps_json(const Advice& advice) {
  OrderedJson list = OrderedJson::array();
  for (const AdvisedStep& step : advice.steps) {
    list.push_back({{"rewrite", step.rewrite},
                    {"family", step.family},
                    {"gain_us", step.gain_us},
                    {"gain_share", step.gain_share},
                    {"error_us", step.error_us},
                    {"within_error", step.within_error},
                    {"step_us", step.step_us},
                    {"batch", json_value(step.batch)},
                    {"memory_bytes", step.needed_bytes},
                    {"same_numbers", step.same_numbers},
                    {"command", step.command},
                    {"code", step.code}});
  }
  return list;
}

OrderedJson combination_json(const Advice& advice) {
  OrderedJson list = OrderedJson::array();
  for (const CombinedStep& step : advice.combination) {
    list.push_back({{"rewrite", step.rewrite},
                    {"family", step.family},
                    {"adds_us", step.adds_us},
                    {"adds_share", step.adds_share},
                    {"error_us", step.error_us},
                    {"within_error", step.within_error},
                    {"others_need_it", step.others_need_it},
                    {"same_numbers", step.same_numbers},
                    {"code", step.code}});
  }
  return list;
}

OrderedJson lost_json(const Advice& advice) {
  OrderedJson list = OrderedJson::array();
  for (const LostMove& move : advice.lost) {
    list.push_back({{"rewrite", move.rewrite},
                    {"family", move.family},
                    {"why", std::string(to_string(move.why))},
                    {"reason", move.reason},
                    {"step_us", json_value(move.step_us)}});
  }
  return list;
}

OrderedJson table_plan_json(const Advice& advice) {
  if (!advice.table_plan) return nullptr;
  const TablePlanAdvice& plan = *advice.table_plan;
  return {{"plan_us", plan.plan_us},
          {"replicated_us", json_value(plan.replicated_us)},
          {"plan", plan.plan},
          {"command", plan.command},
          {"code", plan.code}};
}

OrderedJson layout_plan_json(const Advice& advice) {
  if (!advice.layout_plan) return nullptr;
  const LayoutPlanAdvice& plan = *advice.layout_plan;
  return {{"step_us", plan.step_us},
          {"memory_bytes", plan.memory_bytes},
          {"layout", plan.layout},
          {"replicated_us", json_value(plan.replicated_us)},
          {"replicated_fits", plan.replicated_fits},
          {"software", plan.software},
          {"command", plan.command}};
}

OrderedJson ceiling_json(const Ceiling& ceiling) {
  OrderedJson list = OrderedJson::array();
  for (const CeilingRow& row : ceiling.rows) {
    list.push_back({{"what", row.what},
                    {"alone_us", row.alone_us},
                    {"after_us", row.after_us},
                    {"gain_us", row.gain_us},
                    {"gain_share", row.gain_share}});
  }
  return list;
}

}  // namespace

OrderedJson advice_json(const Advice& advice) {
  return {{"objective", std::string(to_string(advice.objective))},
          {"baseline_us", advice.baseline_us},
          {"best_us", advice.best_us},
          {"best_step_us", advice.best_step_us},
          {"best_error_us", advice.best_error_us},
          {"best_within_error", advice.best_within_error},
          {"baseline_batch", json_value(advice.baseline_batch)},
          {"best_batch", json_value(advice.best_batch)},
          {"baseline_gpus", advice.baseline_ranks},
          {"best_gpus", advice.best_ranks},
          {"memory_limit_bytes", advice.memory_limit_bytes},
          {"baseline_memory_bytes", advice.baseline_bytes},
          {"best_memory_bytes", advice.best_bytes},
          {"baseline_command", advice.baseline_command},
          {"best_command", advice.best_command},
          {"steps", steps_json(advice)},
          {"combination", combination_json(advice)},
          {"ceiling", ceiling_json(advice.ceiling)},
          {"ceiling_rest_us", advice.ceiling.rest_us},
          {"without_path_us", advice.ceiling.without_path_us},
          {"lost", lost_json(advice)},
          {"table_plan", table_plan_json(advice)},
          {"layout_plan", layout_plan_json(advice)},
          {"evaluations", advice.evaluations},
          {"complete", advice.complete},
          {"seconds", advice.seconds},
          {"warnings", advice.warnings}};
}

}  // namespace perfmodel
