#include "what_if_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "prediction_report.hpp"
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

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

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
      const auto rate = [](const std::optional<double>& samples) {
        return samples ? rounded(*samples) : Json(nullptr);
      };
      row.update({{"e2e_us", rounded(answer.e2e_us)},
                  {"e2e_low_us", rounded(answer.e2e_low_us)},
                  {"e2e_high_us", rounded(answer.e2e_high_us)},
                  {"energy_j", answer.energy_j ? six_digits(*answer.energy_j) : Json(nullptr)},
                  {"gpu_active_us", rounded(answer.gpu_active_us)},
                  {"cpu_us", rounded(answer.cpu_us)},
                  {"exposed_communication_us", rounded(answer.exposed_communication_us)},
                  {"batch", answer.batch ? Json(*answer.batch) : Json(nullptr)},
                  {"gpus", answer.ranks},
                  {"samples_per_s", rate(answer.samples_per_s())},
                  {"samples_per_s_per_gpu", rate(answer.samples_per_s_per_gpu())},
                  {"memory", memory_json(answer.memory)},
                  {"warnings", warnings_of(report, answer)},
                  {"speed_up", speed_up(report, answer)},
                  {"bound", answer.bound},
                  {"bound_share", answer.bound_share},
                  {"ops", answer.ops},
                  {"kernels", answer.kernels},
                  {"modelled_time_fraction", answer.modelled_time_fraction},
                  {"unmodelled_ops", answer.unmodelled_ops}});
    }
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string what_if_csv(const WhatIfReport& report) {
  std::string csv = "variant";
  for (const WhatIfAxis& axis : report.axes) csv += "," + csv_cell(axis.name);
  csv +=
      ",gpu,e2e_us,samples_per_s,speed_up,gpu_active_us,cpu_us,bound,bound_share,kernels,"
      "samples_per_s_per_gpu,static_bytes,device_bytes,e2e_low_us,e2e_high_us,energy_j,needed_"
      "bytes,error\n";
  for (const WhatIfAnswer& answer : report.answers) {
    csv += csv_cell(report.variants[answer.variant].name);
    for (const std::string& value : report.values[answer.variant]) {
      csv += ',';
      csv += csv_cell(value);
    }
    csv += ',';
    csv += csv_cell(target_name(report, answer));
    if (answer.error) {
      csv += ",,,,,,,,,,,,,,,,";
      csv += csv_cell(to_string(*answer.error));
      csv += '\n';
      continue;
    }
    const auto rate = [](const std::optional<double>& samples) {
      return samples ? fmt::format("{:.3f}", *samples) : "";
    };
    csv += fmt::format(
        ",{:.3f},{},{:.4f},{:.3f},{:.3f},{},{:.4f},{},{},{:.0f},{:.0f},{:.3f},{:.3f},{},{:.0f},\n",
        answer.e2e_us, rate(answer.samples_per_s()), speed_up(report, answer), answer.gpu_active_us,
        answer.cpu_us, answer.bound, answer.bound_share, answer.kernels,
        rate(answer.samples_per_s_per_gpu()), answer.memory.static_bytes(),
        answer.memory.device_bytes, answer.e2e_low_us, answer.e2e_high_us,
        answer.energy_j ? fmt::format("{:.6g}", *answer.energy_j) : "",
        answer.memory.needed_bytes());
  }
  return csv;
}

}  // namespace perfmodel::cli
