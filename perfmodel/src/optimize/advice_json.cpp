#include "advice_json.hpp"

#include <string>

namespace perfmodel {
namespace {

using AdviceJson = nlohmann::ordered_json;
using AdviceNumber = std::function<AdviceJson(double)>;

AdviceJson whole_or_null(const std::optional<std::int64_t>& value) {
  return value ? AdviceJson(*value) : AdviceJson(nullptr);
}

AdviceJson steps_json(const Advice& advice, const AdviceNumber& number) {
  AdviceJson list = AdviceJson::array();
  for (const AdvisedStep& step : advice.steps) {
    list.push_back({{"rewrite", step.rewrite},
                    {"family", step.family},
                    {"gain_us", number(step.gain_us)},
                    {"gain_share", number(step.gain_share)},
                    {"error_us", number(step.error_us)},
                    {"within_error", step.within_error},
                    {"step_us", number(step.step_us)},
                    {"batch", whole_or_null(step.batch)},
                    {"memory_bytes", number(step.needed_bytes)},
                    {"same_numbers", step.same_numbers},
                    {"command", step.command},
                    {"code", step.code}});
  }
  return list;
}

AdviceJson combination_json(const Advice& advice, const AdviceNumber& number) {
  AdviceJson list = AdviceJson::array();
  for (const CombinedStep& step : advice.combination) {
    list.push_back({{"rewrite", step.rewrite},
                    {"family", step.family},
                    {"adds_us", number(step.adds_us)},
                    {"adds_share", number(step.adds_share)},
                    {"error_us", number(step.error_us)},
                    {"within_error", step.within_error},
                    {"others_need_it", step.others_need_it},
                    {"same_numbers", step.same_numbers},
                    {"code", step.code}});
  }
  return list;
}

AdviceJson lost_json(const Advice& advice, const AdviceNumber& number) {
  AdviceJson list = AdviceJson::array();
  for (const LostMove& move : advice.lost) {
    list.push_back({{"rewrite", move.rewrite},
                    {"family", move.family},
                    {"why", std::string(to_string(move.why))},
                    {"reason", move.reason},
                    {"step_us", move.step_us ? number(*move.step_us) : AdviceJson(nullptr)}});
  }
  return list;
}

AdviceJson table_plan_json(const Advice& advice, const AdviceNumber& number) {
  if (!advice.table_plan) return nullptr;
  const TablePlanAdvice& plan = *advice.table_plan;
  return {{"plan_us", number(plan.plan_us)},
          {"replicated_us", plan.replicated_us ? number(*plan.replicated_us) : AdviceJson(nullptr)},
          {"plan", plan.plan},
          {"command", plan.command},
          {"code", plan.code}};
}

AdviceJson layout_plan_json(const Advice& advice, const AdviceNumber& number) {
  if (!advice.layout_plan) return nullptr;
  const LayoutPlanAdvice& plan = *advice.layout_plan;
  return {{"step_us", number(plan.step_us)},
          {"memory_bytes", number(plan.memory_bytes)},
          {"layout", plan.layout},
          {"replicated_us", plan.replicated_us ? number(*plan.replicated_us) : AdviceJson(nullptr)},
          {"replicated_fits", plan.replicated_fits},
          {"software", plan.software},
          {"command", plan.command}};
}

AdviceJson ceiling_json(const Ceiling& ceiling, const AdviceNumber& number) {
  AdviceJson list = AdviceJson::array();
  for (const CeilingRow& row : ceiling.rows) {
    list.push_back({{"what", row.what},
                    {"alone_us", number(row.alone_us)},
                    {"after_us", number(row.after_us)},
                    {"gain_us", number(row.gain_us)},
                    {"gain_share", number(row.gain_share)}});
  }
  return list;
}

}  // namespace

AdviceJson advice_json(const Advice& advice, const AdviceNumber& number) {
  return {{"objective", std::string(to_string(advice.objective))},
          {"baseline_us", number(advice.baseline_us)},
          {"best_us", number(advice.best_us)},
          {"best_step_us", number(advice.best_step_us)},
          {"best_error_us", number(advice.best_error_us)},
          {"best_within_error", advice.best_within_error},
          {"baseline_batch", whole_or_null(advice.baseline_batch)},
          {"best_batch", whole_or_null(advice.best_batch)},
          {"baseline_gpus", advice.baseline_ranks},
          {"best_gpus", advice.best_ranks},
          {"memory_limit_bytes", number(advice.memory_limit_bytes)},
          {"baseline_memory_bytes", number(advice.baseline_bytes)},
          {"best_memory_bytes", number(advice.best_bytes)},
          {"baseline_command", advice.baseline_command},
          {"best_command", advice.best_command},
          {"steps", steps_json(advice, number)},
          {"combination", combination_json(advice, number)},
          {"ceiling", ceiling_json(advice.ceiling, number)},
          {"ceiling_rest_us", number(advice.ceiling.rest_us)},
          {"without_path_us", number(advice.ceiling.without_path_us)},
          {"lost", lost_json(advice, number)},
          {"table_plan", table_plan_json(advice, number)},
          {"layout_plan", layout_plan_json(advice, number)},
          {"evaluations", advice.evaluations},
          {"complete", advice.complete},
          {"seconds", number(advice.seconds)},
          {"warnings", advice.warnings}};
}

}  // namespace perfmodel
