#include "what_if_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/predict/prediction_report.hpp"
#include "json/csv_file.hpp"
#include "memory/memory_results.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kBytesPerGib = 1 << 30;

std::string rate_text(const std::optional<double>& samples) {
  if (!samples) return "";
  return *samples < 100 ? fmt::format("{:.2f}", *samples) : grouped(std::llround(*samples));
}

std::string bound_text(const WhatIfAnswer& answer) {
  if (answer.bound.empty()) return "";
  return answer.bound + " " + percent(answer.bound_share, 0);
}

// Refusals and what cannot run, each once: "[1] ..." below the table.
class Notes {
 public:
  std::size_t number_of(const std::string& text) {
    const auto known = std::find(notes_.begin(), notes_.end(), text) - notes_.begin();
    const auto position = static_cast<std::size_t>(known);
    if (position == notes_.size()) notes_.push_back(text);
    return position + 1;
  }
  std::string text() const {
    std::string result;
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      result += wrapped(notes_[i], fmt::format("  [{}] ", i + 1), 6);
    }
    return result;
  }

 private:
  std::vector<std::string> notes_;
};

std::string target_name(const WhatIfReport& report, const WhatIfAnswer& answer) {
  return report.targets[answer.target].gpu.name;
}

bool several_gpus(const WhatIfReport& report) {
  return std::ranges::any_of(report.answers,
                             [](const WhatIfAnswer& answer) { return answer.ranks > 1; });
}

// Of this row alone: a step that cannot run, for its types or its memory.
std::vector<std::string> warnings_of(const WhatIfReport& report, const WhatIfAnswer& answer) {
  std::vector<std::string> warnings = answer.lacking_units;
  const std::string memory = memory_warning(answer.memory, report.targets[answer.target].gpu);
  if (!memory.empty()) warnings.push_back(memory);
  return warnings;
}

// " [1]"
std::string note(const WhatIfReport& report, const WhatIfAnswer& answer, Notes& notes) {
  std::string text;
  for (const std::string& warning : warnings_of(report, answer)) {
    text += fmt::format(" [{}]", notes.number_of(warning));
  }
  return text;
}

// What the user has to know of all answers together.
std::vector<std::string> unmodelled_ops(const WhatIfReport& report) {
  std::vector<std::string> names;
  for (const WhatIfAnswer& answer : report.answers) {
    for (const std::string& op : answer.unmodelled_ops) {
      if (std::find(names.begin(), names.end(), op) == names.end()) names.push_back(op);
    }
  }
  return names;
}

struct WhatIfRow {
  const WhatIfReport* report;
  const WhatIfAnswer* answer;
};

auto of_answer(auto member) {
  return [member](const WhatIfRow& row) { return std::invoke(member, *row.answer); };
}

const ResultFields<WhatIfRow> kRowFields = {
    {"e2e_us", of_answer(&WhatIfAnswer::e2e_us)},
    {"e2e_low_us", of_answer(&WhatIfAnswer::e2e_low_us)},
    {"e2e_high_us", of_answer(&WhatIfAnswer::e2e_high_us)},
    {"energy_j", of_answer(&WhatIfAnswer::energy_j)},
    {"gpu_active_us", of_answer(&WhatIfAnswer::gpu_active_us)},
    {"cpu_us", of_answer(&WhatIfAnswer::cpu_us)},
    {"exposed_communication_us", of_answer(&WhatIfAnswer::exposed_communication_us)},
    {"batch", of_answer(&WhatIfAnswer::batch)},
    {"gpus", of_answer(&WhatIfAnswer::ranks)},
    {"samples_per_s", of_answer(&WhatIfAnswer::samples_per_s), Digits::kThreeDecimals},
    {"samples_per_s_per_gpu", of_answer(&WhatIfAnswer::samples_per_s_per_gpu),
     Digits::kThreeDecimals},
    {"memory", [](const WhatIfRow& row) { return predicted_memory_json(row.answer->memory); }},
    {"warnings", [](const WhatIfRow& row) { return warnings_of(*row.report, *row.answer); }},
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

double speed_up(const WhatIfReport& report, const WhatIfAnswer& answer) {
  const WhatIfAnswer& baseline = report.baseline();
  if (answer.error || baseline.error) return 0;
  const double by_time = baseline.e2e_us / answer.e2e_us;
  if (!answer.batch || !baseline.batch || *baseline.batch == 0) return by_time;
  const auto samples = [](const WhatIfAnswer& one) {
    return static_cast<double>(*one.batch) * static_cast<double>(one.ranks);
  };
  return by_time * samples(answer) / samples(baseline);
}

std::string what_if_text(const WhatIfReport& report, bool bold) {
  std::vector<std::string> headers;
  for (const WhatIfAxis& axis : report.axes) headers.push_back("<" + axis.name);
  // A column without any text is left out.
  headers.insert(headers.end(),
                 {"<GPU", report.at_largest_batch ? "batch" : "",
                  report.at_largest_batch ? "GiB" : "", "step ms", "samples/s",
                  several_gpus(report) ? "per GPU" : "", "speed-up", "GPU busy", "<bound by"});
  TextTable table(headers);
  Notes notes;
  for (const WhatIfAnswer& answer : report.answers) {
    std::vector<std::string> cells;
    for (const std::string& value : report.values[answer.variant]) {
      cells.push_back(value.empty() ? "same" : value);
    }
    cells.push_back(target_name(report, answer));
    if (answer.error) {
      const auto note = notes.number_of(to_string(*answer.error));
      cells.insert(cells.end(), {"", "", "", "", "", "", "", fmt::format("refused [{}]", note)});
    } else {
      cells.insert(
          cells.end(),
          {report.at_largest_batch ? std::to_string(answer.batch.value_or(0)) : "",
           report.at_largest_batch
               ? fmt::format("{:.1f}", answer.memory.needed_bytes() / kBytesPerGib)
               : "",
           milliseconds(answer.e2e_us), rate_text(answer.samples_per_s()),
           several_gpus(report) ? rate_text(answer.samples_per_s_per_gpu()) : "",
           fmt::format("{:.2f}", speed_up(report, answer)), percent(answer.gpu_utilization(), 0),
           bound_text(answer) + note(report, answer, notes)});
    }
    table.row(std::move(cells));
  }
  std::string text = "\n" + table.text(bold) + notes.text();
  const auto unmodelled = unmodelled_ops(report);
  if (!unmodelled.empty()) {
    text += "\n" + wrapped(fmt::format("not modelled, so not in these times: {}",
                                       fmt::join(unmodelled, ", ")),
                           "  ", 2);
  }
  for (const std::string& warning : report.warnings) text += wrapped(warning, "  warning: ", 4);
  return text;
}

Json what_if_json(const WhatIfReport& report) {
  Json json = document(schemas::kWhatIf);
  json.update({{"graph", report.graph_file},
               {"models", report.models},
               {"gpus", Json::array()},
               {"rows", Json::array()},
               {"warnings", report.warnings}});
  for (const WhatIfTarget& target : report.targets) json["gpus"].push_back(target.gpu.name);
  for (const WhatIfAnswer& answer : report.answers) {
    Json row = {{"variant", report.variants[answer.variant].name},
                {"rewrites", Json::object()},
                {"gpu", target_name(report, answer)}};
    for (std::size_t i = 0; i < report.axes.size(); ++i) {
      const std::string& value = report.values[answer.variant][i];
      row["rewrites"][report.axes[i].name] = value.empty() ? Json(nullptr) : Json(value);
    }
    if (answer.error) {
      row["error"] = to_string(*answer.error);
    } else {
      row.update(json_object(WhatIfRow{&report, &answer}, kRowFields));
    }
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string what_if_csv(const WhatIfReport& report) {
  std::string csv = "variant";
  for (const WhatIfAxis& axis : report.axes) csv += "," + csv_cell(axis.name);
  const auto fields = named_fields(
      joined_fields<WhatIfRow>(
          {kRowFields, part_fields<WhatIfRow>(of_answer(&WhatIfAnswer::memory), kMemoryFields),
           part_fields<WhatIfRow>(of_answer(&WhatIfAnswer::memory), kHeldMemoryFields)}),
      {"e2e_us", "samples_per_s", "speed_up", "gpu_active_us", "cpu_us", "bound", "bound_share",
       "kernels", "samples_per_s_per_gpu", "static_bytes", "device_bytes", "e2e_low_us",
       "e2e_high_us", "energy_j", "needed_bytes"});
  csv += ",gpu," + csv_header(fields) + ",error\n";
  for (const WhatIfAnswer& answer : report.answers) {
    csv += csv_cell(report.variants[answer.variant].name);
    for (const std::string& value : report.values[answer.variant]) {
      csv += ',';
      csv += csv_cell(value);
    }
    csv += ',';
    csv += csv_cell(target_name(report, answer));
    csv += ',';
    csv += answer.error ? std::string(fields.size(), ',') + csv_cell(to_string(*answer.error))
                        : csv_cells(WhatIfRow{&report, &answer}, fields) + ",";
    csv += '\n';
  }
  return csv;
}

}  // namespace perfmodel::cli
