#include "comparison_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "terminal/field_table.hpp"
#include "trace/comparison_results.hpp"

namespace perfmodel::cli {
namespace {

using ComparedTerm = TraceComparison::Term;
using ComparedChange = TraceComparison::Change;

std::string changes_text(const std::vector<ComparedChange>& changes,
                         const ResultFields<ComparedChange>& fields,
                         const std::vector<std::string_view>& columns, std::string_view title,
                         std::size_t top, bool bold) {
  const TextTable table = field_table(changes, fields, columns, title, top);
  if (table.empty()) return {};
  std::string text = "\n" + table.text(bold);
  if (changes.size() > top) text += fmt::format("  ({} more)\n", changes.size() - top);
  return text;
}

// Terms add up to the step.
std::vector<ComparedTerm> with_step(std::vector<ComparedTerm> terms,
                                    const TraceComparison& comparison) {
  terms.push_back({"step", comparison.step_before_us, comparison.step_after_us});
  return terms;
}

std::string against_terms_text(std::string_view title, const std::vector<ComparedTerm>& terms,
                               const TraceComparison& comparison, bool bold) {
  const double step_us = comparison.step_before_us;
  const auto of_step = [step_us](const ComparedTerm& term) -> std::string {
    if (!(step_us > 0)) return "";
    return fmt::format("{:+.1f} %", 100 * (term.after_us - term.before_us) / step_us);
  };
  const auto fields = joined_fields<ComparedTerm>(
      {kTermErrorFields, {{"share", &ComparedTerm::after_us, "of the step", of_step}}});
  return "\n" + field_table(with_step(terms, comparison), fields,
                            {"term", "measured_us", "predicted_us", "change_us", "share"}, title)
                    .text(bold);
}

}  // namespace

std::string comparison_text(const TraceComparison& comparison, const std::string& before,
                            const std::string& after, std::size_t top, bool bold) {
  TextList head;
  head.row("before", fmt::format("{}, {}", before, counted(comparison.steps_before, "step")));
  head.row("after", fmt::format("{}, {}", after, counted(comparison.steps_after, "step")));
  std::string text = warnings_text(comparison.warnings) + "\n" + head.text();
  text += "\n" + field_table(with_step(comparison.terms, comparison), kTermChangeFields,
                             {"term", "before_us", "after_us", "change_us"})
                     .text(bold);
  if (comparison.ops.empty() && comparison.kernels.empty()) {
    text += "\n  No op differs in its count or in its time on the device.\n";
  }
  const std::vector<std::string_view> columns = {"op",        "count_before", "count_after",
                                                 "before_us", "after_us",     "change_us"};
  text += changes_text(comparison.ops, kOpChangeFields, columns, {}, top, bold);
  text +=
      changes_text(comparison.kernels, kOpChangeFields, columns, "Kernels, per step", top, bold);
  return text;
}

std::string against_text(const TraceComparison& comparison, const std::string& trace,
                         std::size_t top, bool bold) {
  TextList head;
  head.row("against", fmt::format("{}, {}", trace, counted(comparison.steps_before, "step")));
  return warnings_text(comparison.warnings) + "\n" + head.text() +
         against_terms_text("Mean step, the device", comparison.terms, comparison, bold) +
         against_terms_text("Mean step, the host", comparison.host_terms, comparison, bold) +
         changes_text(
             comparison.families, kFamilyErrorFields,
             {"family", "measured_count", "measured_us", "predicted_us", "change_us", "error"}, {},
             comparison.families.size(), bold) +
         changes_text(comparison.ops, kOpErrorFields,
                      {"op", "measured_count", "measured_us", "predicted_us", "change_us",
                       "measured_host_us", "predicted_host_us", "host_change_us"},
                      {}, top, bold);
}

}  // namespace perfmodel::cli
