#include "findings_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/plain_text.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kIndentOfFinding = 6;

std::string finding_lines(const Finding& finding, std::size_t number) {
  std::string gain = "no time";
  if (finding.gain_us) {
    gain = fmt::format("gains {:.1f} % ({:.3f} ms)", 100 * finding.gain_share,
                       *finding.gain_us / 1000);
  }
  std::string text = wrapped(fmt::format("{} [{}]", plain_text(finding.title), finding.rule),
                             fmt::format("  {:>2}. ", number), kIndentOfFinding);
  text += wrapped(fmt::format("{}, takes {:.1f} % itself, confidence {}", gain, 100 * finding.share,
                              to_string(finding.confidence)),
                  "      ", kIndentOfFinding);
  text += wrapped("where: " + plain_text(finding.where), "      ", kIndentOfFinding);
  text += wrapped(finding.advice, "      ", kIndentOfFinding);
  return text + "\n";
}

// "6 more gain less than 2 %: 4 blocking-waits, 2 far-below-roofline (--full)".
std::string folded_line(const std::vector<Finding>& findings) {
  std::map<std::string_view, std::size_t> counts;
  std::size_t folded = 0;
  for (const Finding& finding : findings) {
    if (!finding.folded) continue;
    ++counts[finding.rule];
    ++folded;
  }
  if (folded == 0) return "";
  std::vector<std::string> parts;
  for (const auto& [rule, count] : counts) parts.push_back(fmt::format("{} {}", count, rule));
  return wrapped(
      fmt::format("{} more, each gains less than 2 %: {} (--full)", folded, fmt::join(parts, ", ")),
      "  ", 2);
}

}  // namespace

std::string findings_text(const FindingsReport& report, bool full) {
  const Findings& found = report.found;
  std::string text;
  if (!found.warnings.empty()) {
    text += "  Warnings\n";
    for (const std::string& warning : found.warnings) {
      text += wrapped(plain_text(warning), "  - ", 4);
    }
    text += "\n";
  }
  TextList list;
  list.row(report.files.size() == 1 ? "input" : "inputs",
           fmt::format("{}", fmt::join(report.files, ", ")));
  list.row("GPU", report.gpu.empty() ? "not known" : report.gpu);
  std::string step = fmt::format("{:.3f} ms", found.step_us / 1000);
  if (found.measured_us) {
    step += fmt::format(" as scheduled again, {:.3f} as recorded", *found.measured_us / 1000);
  }
  list.row("step", step);
  text += list.text() + "\n";
  std::size_t number = 0;
  for (const Finding& finding : found.findings) {
    if (finding.folded && !full) continue;
    text += finding_lines(finding, ++number);
  }
  if (number == 0) text += "  No rule finds anything that gains 2 % of the step.\n";
  if (!full) text += folded_line(found.findings);
  if (number > 1) {
    text += wrapped(
        "Gains are each on its own: the step scheduled again with that repair. They do "
        "not add up.",
        "  ", 2);
  }
  return text;
}

Json findings_keys(const FindingsReport& report) {
  const Findings& found = report.found;
  Json json;
  json["inputs"] = report.files;
  json["gpu"] = report.gpu.empty() ? Json() : Json(report.gpu);
  json["step_us"] = rounded(found.step_us);
  json["measured_us"] = found.measured_us ? rounded(*found.measured_us) : Json();
  json["findings"] = Json::array();
  for (const Finding& finding : found.findings) {
    json["findings"].push_back({{"rule", finding.rule},
                                {"title", finding.title},
                                {"where", finding.where},
                                {"share", six_digits(finding.share)},
                                {"gain_us", finding.gain_us ? rounded(*finding.gain_us) : Json()},
                                {"gain_share", six_digits(finding.gain_share)},
                                {"confidence", to_string(finding.confidence)},
                                {"advice", finding.advice},
                                {"folded", finding.folded}});
  }
  json["warnings"] = found.warnings;
  return json;
}

}  // namespace perfmodel::cli
