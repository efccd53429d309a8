#include "what_if_results.hpp"

#include <functional>

#include "json/csv_file.hpp"
#include "memory/memory_results.hpp"

namespace perfmodel {
namespace {

struct WhatIfRow {
  const WhatIfReport* report;
  const WhatIfAnswer* answer;
};

auto of_answer(auto member) {
  return [member](const WhatIfRow& row) { return std::invoke(member, *row.answer); };
}

const ResultFields<WhatIfRow> kWhatIfRowFields = {
    {"e2e_us", of_answer(&WhatIfAnswer::e2e_us)},
    {"e2e_low_us", of_answer(&WhatIfAnswer::e2e_low_us)},
    {"e2e_high_us", of_answer(&WhatIfAnswer::e2e_high_us)},
    {"energy_j", of_answer(&WhatIfAnswer::energy_j)},
    {"usd_per_million",
     [](const WhatIfRow& row) { return usd_per_million(*row.report, *row.answer); }},
    {"kwh_per_million", of_answer(kwh_per_million)},
    {"gpu_active_us", of_answer(&WhatIfAnswer::gpu_active_us)},
    {"cpu_us", of_answer(&WhatIfAnswer::cpu_us)},
    {"exposed_communication_us", of_answer(&WhatIfAnswer::exposed_communication_us)},
    {"batch", of_answer(&WhatIfAnswer::batch)},
    {"gpus", of_answer(&WhatIfAnswer::ranks)},
    {"samples_per_s", of_answer(&WhatIfAnswer::samples_per_s), Digits::kThreeDecimals},
    {"samples_per_s_per_gpu", of_answer(&WhatIfAnswer::samples_per_s_per_gpu),
     Digits::kThreeDecimals},
    {"memory", [](const WhatIfRow& row) { return predicted_memory_json(row.answer->memory); }},
    {"warnings", [](const WhatIfRow& row) { return answer_warnings(*row.report, *row.answer); }},
    {"speed_up", [](const WhatIfRow& row) { return speed_up(*row.report, *row.answer); },
     Digits::kFourInTables},
    {"bound", of_answer(&WhatIfAnswer::bound)},
    {"bound_share", of_answer(&WhatIfAnswer::bound_share), Digits::kFourInTables},
    {"ops", of_answer(&WhatIfAnswer::ops)},
    {"kernels", of_answer(&WhatIfAnswer::kernels)},
    {"modelled_time_fraction", of_answer(&WhatIfAnswer::modelled_time_fraction), Digits::kAll},
    {"unmodelled_ops", of_answer(&WhatIfAnswer::unmodelled_ops)},
};

}  // namespace

OrderedJson what_if_json(const WhatIfReport& report) {
  OrderedJson json = {{"graph", report.graph_file},
                      {"models", report.models},
                      {"gpus", OrderedJson::array()},
                      {"rows", OrderedJson::array()},
                      {"warnings", report.warnings}};
  if (!report.usd_per_gpu_hour.empty()) json["cheapest_first"] = cheapest_first(report);
  for (const WhatIfTarget& target : report.targets) json["gpus"].push_back(target.gpu.name);
  for (const WhatIfAnswer& answer : report.answers) {
    OrderedJson row = {{"variant", report.variants[answer.variant].name},
                       {"rewrites", OrderedJson::object()},
                       {"gpu", report.gpu(answer).name}};
    for (std::size_t i = 0; i < report.axes.size(); ++i) {
      const std::string& value = report.values[answer.variant][i];
      row["rewrites"][report.axes[i].name] =
          value.empty() ? OrderedJson(nullptr) : OrderedJson(value);
    }
    if (answer.error) {
      row["error"] = to_string(*answer.error);
    } else {
      row.update(json_object(WhatIfRow{&report, &answer}, kWhatIfRowFields));
    }
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string what_if_csv(const WhatIfReport& report) {
  std::string csv = "variant";
  for (const sweep::RewriteAxis& axis : report.axes) csv += "," + csv_cell(axis.name);
  const auto fields = named_fields(
      joined_fields<WhatIfRow>(
          {kWhatIfRowFields,
           part_fields<WhatIfRow>(of_answer(&WhatIfAnswer::memory), kMemoryFields),
           part_fields<WhatIfRow>(of_answer(&WhatIfAnswer::memory), kHeldMemoryFields)}),
      {"e2e_us", "samples_per_s", "speed_up", "gpu_active_us", "cpu_us", "bound", "bound_share",
       "kernels", "samples_per_s_per_gpu", "static_bytes", "device_bytes", "e2e_low_us",
       "e2e_high_us", "energy_j", "needed_bytes", "usd_per_million", "kwh_per_million"});
  csv += ",gpu," + csv_header(fields) + ",error\n";
  for (const WhatIfAnswer& answer : report.answers) {
    csv += csv_cell(report.variants[answer.variant].name);
    for (const std::string& value : report.values[answer.variant]) (csv += ',') += csv_cell(value);
    ((csv += ',') += csv_cell(report.gpu(answer).name)) += ',';
    csv += answer.error ? std::string(fields.size(), ',') + csv_cell(to_string(*answer.error))
                        : csv_cells(WhatIfRow{&report, &answer}, fields) + ",";
    csv += '\n';
  }
  return csv;
}

}  // namespace perfmodel
