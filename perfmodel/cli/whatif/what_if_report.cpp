#include "what_if_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/shared/prediction_parts.hpp"
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

// Refusals and variants that cannot run, each once: "[1] ..." below the table.
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

bool several_gpus(const WhatIfReport& report) {
  return std::ranges::any_of(report.answers,
                             [](const WhatIfAnswer& answer) { return answer.ranks > 1; });
}

// " [1]"
std::string note(const WhatIfReport& report, const WhatIfAnswer& answer, Notes& notes) {
  std::string text;
  for (const std::string& warning : answer_warnings(report, answer)) {
    text += fmt::format(" [{}]", notes.number_of(warning));
  }
  return text;
}

}  // namespace

std::string what_if_text(const WhatIfReport& report, bool bold) {
  const bool priced = !report.usd_per_gpu_hour.empty();
  std::vector<std::string> headers;
  for (const sweep::RewriteAxis& axis : report.axes) headers.push_back("<" + axis.name);
  // A column without any text is left out.
  headers.insert(headers.end(), {"<GPU", report.at_largest_batch ? "batch" : "",
                                 report.at_largest_batch ? "GiB" : "", "step ms", "samples/s",
                                 several_gpus(report) ? "per GPU" : "", priced ? "$ per M" : "",
                                 priced ? "kWh per M" : "", "speed-up", "GPU busy", "<bound by"});
  TextTable table(headers);
  Notes notes;
  for (const std::size_t at : cheapest_first(report)) {
    const WhatIfAnswer& answer = report.answers[at];
    std::vector<std::string> cells;
    for (const std::string& value : report.values[answer.variant]) {
      cells.push_back(value.empty() ? "same" : value);
    }
    cells.push_back(report.gpu(answer).name);
    if (answer.error) {
      const auto note = notes.number_of(to_string(*answer.error));
      cells.insert(cells.end(),
                   {"", "", "", "", "", "", "", "", "", fmt::format("refused [{}]", note)});
    } else {
      cells.insert(
          cells.end(),
          {report.at_largest_batch ? std::to_string(answer.batch.value_or(0)) : "",
           report.at_largest_batch
               ? fmt::format("{:.1f}", answer.memory.needed_bytes() / kBytesPerGib)
               : "",
           milliseconds(answer.e2e_us), rate_text(answer.samples_per_s()),
           several_gpus(report) ? rate_text(answer.samples_per_s_per_gpu()) : "",
           priced ? rate_text(usd_per_million(report, answer)) : "",
           priced ? rate_text(kwh_per_million(answer)) : "",
           fmt::format("{:.2f}", speed_up(report, answer)), percent(answer.gpu_utilization(), 0),
           bound_text(answer) + note(report, answer, notes)});
    }
    table.row(std::move(cells));
  }
  std::string text = "\n" + table.text(bold) + notes.text();
  text += unmodelled_text(unmodelled_ops(report));
  for (const std::string& warning : report.warnings) text += wrapped(warning, "  warning: ", 4);
  return text;
}

}  // namespace perfmodel::cli
