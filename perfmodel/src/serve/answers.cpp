#include "answers.hpp"

#include <fmt/format.h>

#include "base/each_name.hpp"
#include "base/secrets.hpp"
#include "layout/layout_results.hpp"
#include "memory/memory_results.hpp"
#include "predict/prediction_results.hpp"

namespace perfmodel::serve {
namespace {

Json ops_json(const Prediction& prediction) {
  static const auto kFields = named_fields(
      kPredictedKernelFields, {"name", "family", "stream", "start_us", "time_us", "in_range"});
  Json list = Json::array();
  for (const PredictedOp& op : prediction.ops) {
    list.push_back({PERFMODEL_VALUES(op, id, name, thread, start_us, host_us, wait_us),
                    {"kernels", json_list(op.kernels, kFields, true)}});
  }
  return list;
}

Json knowledge_json(const Prediction::Coverage& coverage) {
  Json json = Json::object();
  for (std::size_t level = kKnowledgeLevels; level-- > 0;) {
    json[std::string(to_string(static_cast<Knowledge>(level)))] =
        coverage.kernel_us_by_knowledge[level];
  }
  return json;
}

Json parts_json(const std::vector<Explanation::Part>& parts) {
  Json list = Json::array();
  for (const auto& part : parts) {
    list.push_back({PERFMODEL_VALUES(part, name, us, share)});
  }
  return list;
}

}  // namespace

Json prediction_json(const Prediction& prediction) {
  static const auto kFigures =
      named_fields(kStepFields, {"e2e_us", "e2e_low_us", "e2e_high_us", "energy_j", "gpu_active_us",
                                 "gpu_idle_us", "cpu_us", "wait_us", "kernel_sum_us",
                                 "compute_kernel_us", "comm_kernel_us"});
  Json json = json_object(prediction, kFigures, true);
  json["exposed_comm_us"] = prediction.communication.exposed_us;
  json.update(json_object(prediction, named_fields(kStepFields, {"overheads_us"}), true));
  json.update(json_object(prediction, kJobFields, true));
  json.update({{"memory", predicted_memory_json(prediction.memory, true)},
               {"modelled_time_fraction", prediction.coverage.modelled_time_fraction},
               {"kernel_us_by_knowledge", knowledge_json(prediction.coverage)},
               {"warnings", prediction.warnings}});
  if (!prediction.ops.empty()) json["ops"] = ops_json(prediction);
  return json;
}

Json explanation_json(const Explanation& explanation) {
  return {PERFMODEL_VALUES(explanation, text, bound, bound_share, gpu_utilization),
          {"path", parts_json(explanation.path)},
          {"host", parts_json(explanation.host)},
          {"kernels", parts_json(explanation.kernels)}};
}

Json layout_answer(const RankedLayout& layout, const std::vector<std::string>& notes) {
  Json json = json_object(layout, kRankedLayoutFields, true);
  json["warnings"] = notes;
  for (const std::string& warning : layout.prediction.warnings) json["warnings"].push_back(warning);
  return json;
}

Json ranking_answer(const LayoutRanking& ranking, const std::vector<std::string>& notes) {
  Json json = {{"layouts", json_list(ranking.best, kRankedLayoutFields, true)},
               PERFMODEL_VALUES(ranking, considered, priced, fitting),
               {"warnings", notes}};
  if (!ranking.unfit.empty()) json["warnings"].push_back(ranking.unfit);
  for (const std::string& warning : ranking.best.front().prediction.warnings) {
    json["warnings"].push_back(warning);
  }
  return json;
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string result_line(const std::string& id, std::string_view result) {
  return fmt::format("{{\"id\":{},\"result\":{}}}", id, result);
}

std::string result_line(const std::string& id, const Json& result) {
  return result_line(id, std::string_view(json_line(result)));
}

std::string error_line(const std::string& id, const std::string& code, const std::string& message) {
  const Json error = {{"code", code}, {"message", shown_text(message, kLongestMessage)}};
  return "{\"id\":" + id + ",\"error\":" + json_line(error) + "}";
}

std::string error_line(const char* code, const std::string& message) {
  return error_line(std::string("null"), code, message);
}

}  // namespace perfmodel::serve
