#include "answers.hpp"

#include <fmt/format.h>

#include "base/secrets.hpp"
#include "layout/layout_json.hpp"

namespace perfmodel::serve {
namespace {

Json host_terms_json(const Prediction& made) {
  Json json = Json::object();
  for (const HostTerm& host : kHostTerms) {
    json[host.key] = made.terms_us[static_cast<std::size_t>(host.term)];
  }
  return json;
}

Json kernel_json(const PredictedKernel& kernel) {
  return {{"name", kernel.name},
          {"family", to_string(kernel.family)},
          {"stream", kernel.stream},
          {"start_us", kernel.start_us},
          {"time_us", kernel.price.time.count()},
          {"in_range", kernel.price.in_range}};
}

Json ops_json(const Prediction& made) {
  Json list = Json::array();
  for (const PredictedOp& op : made.ops) {
    Json kernels = Json::array();
    for (const PredictedKernel& kernel : op.kernels) kernels.push_back(kernel_json(kernel));
    list.push_back({{"id", op.id},
                    {"name", op.name},
                    {"thread", op.thread},
                    {"start_us", op.start_us},
                    {"host_us", op.host_us},
                    {"wait_us", op.wait_us},
                    {"kernels", std::move(kernels)}});
  }
  return list;
}

Json parts_json(const std::vector<Explanation::Part>& parts) {
  Json list = Json::array();
  for (const auto& part : parts) {
    list.push_back({{"name", part.name}, {"us", part.us}, {"share", part.share}});
  }
  return list;
}

Json memory_json(const PredictedMemory& memory) {
  if (!(memory.needed_bytes() > 0)) return nullptr;  // of a trace: not known
  Json purposes = Json::object();
  for (const auto& [purpose, bytes] : memory.held.by_purpose()) {
    purposes[std::string(purpose)] = bytes;
  }
  return {{"static_bytes", memory.static_bytes()},
          {"activation_bytes", memory.activation_bytes},
          {"peak_allocated_bytes", memory.peak_allocated_bytes},
          {"peak_reserved_bytes", memory.peak_reserved_bytes},
          {"needed_bytes", memory.needed_bytes()},
          {"device_bytes", memory.device_bytes},
          {"static_fits", memory.static_fits()},
          {"fits", memory.fits()},
          {"by_purpose", std::move(purposes)}};
}

// With all its digits.
Json whole_number(double value) { return value; }

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

Json prediction_json(const Prediction& made) {
  Json json = {{"e2e_us", made.e2e_us},
               {"e2e_low_us", made.e2e_low_us},
               {"e2e_high_us", made.e2e_high_us},
               {"energy_j", optional_json(made.energy_j)},
               {"gpu_active_us", made.gpu_active_us},
               {"gpu_idle_us", made.gpu_idle_us},
               {"cpu_us", made.cpu_us},
               {"wait_us", made.wait_us},
               {"kernel_sum_us", made.kernel_sum_us},
               {"compute_kernel_us", made.compute_kernel_us},
               {"comm_kernel_us", made.comm_kernel_us},
               {"exposed_comm_us", made.communication.exposed_us},
               {"overheads_us", host_terms_json(made)},
               {"gpus", made.ranks},
               {"batch_per_gpu", made.batch ? Json(*made.batch) : Json(nullptr)},
               {"samples_per_s", optional_json(made.samples_per_s())},
               {"samples_per_s_per_gpu", optional_json(made.samples_per_s_per_gpu())},
               {"memory", memory_json(made.memory)},
               {"modelled_time_fraction", made.coverage.modelled_time_fraction},
               {"warnings", made.warnings}};
  if (!made.ops.empty()) json["ops"] = ops_json(made);
  return json;
}

Json explanation_json(const Explanation& explanation) {
  return {{"text", explanation.text},
          {"bound", explanation.bound},
          {"bound_share", explanation.bound_share},
          {"gpu_utilization", explanation.gpu_utilization},
          {"path", parts_json(explanation.path)},
          {"host", parts_json(explanation.host)},
          {"kernels", parts_json(explanation.kernels)}};
}

Json layout_answer(const RankedLayout& layout, const std::vector<std::string>& notes) {
  Json json = layout_json(layout, whole_number);
  json["warnings"] = notes;
  for (const std::string& warning : layout.prediction.warnings) json["warnings"].push_back(warning);
  return json;
}

Json ranking_answer(const LayoutRanking& ranking, const std::vector<std::string>& notes) {
  Json layouts = Json::array();
  for (const RankedLayout& one : ranking.best) layouts.push_back(layout_json(one, whole_number));
  Json json = {{"layouts", std::move(layouts)},
               {"considered", ranking.considered},
               {"priced", ranking.priced},
               {"fitting", ranking.fitting},
               {"warnings", notes}};
  for (const std::string& warning : ranking.best.front().prediction.warnings) {
    json["warnings"].push_back(warning);
  }
  return json;
}

std::string result_line(const std::string& id, std::string_view result) {
  return fmt::format("{{\"id\":{},\"result\":{}}}", id, result);
}

std::string result_line(const std::string& id, const Json& result) {
  return result_line(id,
                     std::string_view(result.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

std::string error_line(const std::string& id, const std::string& code, const std::string& message) {
  const Json error = {{"code", code}, {"message", shown_text(message, kLongestMessage)}};
  return "{\"id\":" + id +
         ",\"error\":" + error.dump(-1, ' ', false, Json::error_handler_t::replace) + "}";
}

std::string error_line(const char* code, const std::string& message) {
  return error_line(std::string("null"), code, message);
}

}  // namespace perfmodel::serve
