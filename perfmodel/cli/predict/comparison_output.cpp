#include <fmt/format.h>

#include <algorithm>

#include "base/number_text.hpp"
#include "cli/shared/prediction_parts.hpp"
#include "cli/trace/trace_output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using ComparedChange = TraceComparison::Change;

Json change_json(const ComparedChange& at) {
  return {{"count_before", six_digits(at.count_before)},
          {"count_after", six_digits(at.count_after)},
          {"before_us", rounded(at.before_us)},
          {"after_us", rounded(at.after_us)},
          {"change_us", rounded(at.change_us())}};
}

Json changes_json(const std::vector<ComparedChange>& changes) {
  Json json = Json::array();
  for (const auto& at : changes) {
    Json row = {{"op", at.op}, {"shapes", at.shapes.empty() ? Json(nullptr) : Json(at.shapes)}};
    if (!at.kernel.empty()) row["kernel"] = at.kernel;
    row.update(change_json(at));
    if (at.kernel.empty()) {
      row.update({{"host_before_us", rounded(at.host_before_us)},
                  {"host_after_us", rounded(at.host_after_us)}});
    }
    json.push_back(std::move(row));
  }
  return json;
}

// Share of a measured time by which the predicted one is off.
Json error_json(double measured_us, double predicted_us) {
  return measured_us > 0 ? six_digits(predicted_us / measured_us - 1) : Json(nullptr);
}

Json against_terms_json(const std::vector<TraceComparison::Term>& terms) {
  Json json = Json::array();
  for (const auto& term : terms) {
    json.push_back({{"term", term.name},
                    {"measured_us", rounded(term.before_us)},
                    {"predicted_us", rounded(term.after_us)},
                    {"change_us", rounded(term.after_us - term.before_us)}});
  }
  return json;
}

Json against_row_json(const ComparedChange& at) {
  return {{"measured_count", six_digits(at.count_before)},
          {"predicted_count", six_digits(at.count_after)},
          {"measured_us", rounded(at.before_us)},
          {"predicted_us", rounded(at.after_us)},
          {"change_us", rounded(at.change_us())}};
}

std::string signed_ms(double us) { return fmt::format("{:+.3f}", us / 1e3); }

std::string per_step_count(double count) { return fmt::format("{:.6g}", count); }

std::string changes_text(const std::vector<TraceComparison::Change>& changes, const char* title,
                         std::size_t top, bool bold) {
  TextTable table{title, "count", "then", "GPU ms", "then", "change ms"};
  const std::size_t shown = std::min(top, changes.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& at = changes[i];
    const std::string name = at.kernel.empty()
                                 ? (at.shapes.empty() ? at.op : at.op + " " + at.shapes)
                                 : at.kernel + " (" + at.op + ")";
    table.row({name, per_step_count(at.count_before), per_step_count(at.count_after),
               milliseconds(at.before_us), milliseconds(at.after_us), signed_ms(at.change_us())});
  }
  if (table.empty()) return {};
  std::string text = "\n" + table.text(bold);
  if (changes.size() > shown) text += fmt::format("  ({} more)\n", changes.size() - shown);
  return text;
}

std::string against_terms_text(const char* title, const std::vector<TraceComparison::Term>& terms,
                               const TraceComparison& comparison, bool bold) {
  TextTable table{title, "measured ms", "predicted ms", "change ms", "of the step"};
  const auto row = [&](const std::string& name, double measured, double predicted) {
    const double change = predicted - measured;
    table.row({name, milliseconds(measured), milliseconds(predicted), signed_ms(change),
               comparison.step_before_us > 0
                   ? fmt::format("{:+.1f} %", 100 * change / comparison.step_before_us)
                   : ""});
  };
  for (const auto& term : terms) row(term.name, term.before_us, term.after_us);
  row("step", comparison.step_before_us, comparison.step_after_us);
  return "\n" + table.text(bold);
}

std::string counts_text(const ComparedChange& at) {
  const std::string measured = per_step_count(at.count_before),
                    predicted = per_step_count(at.count_after);
  return measured == predicted ? measured : measured + " / " + predicted;
}

std::string against_families_text(const TraceComparison& comparison, bool bold) {
  TextTable table{"Kernels by family", "count",     "measured ms",
                  "predicted ms",      "change ms", "error"};
  for (const auto& at : comparison.families) {
    table.row(
        {at.kernel, counts_text(at), milliseconds(at.before_us), milliseconds(at.after_us),
         signed_ms(at.change_us()),
         at.before_us > 0 ? fmt::format("{:+.1f} %", 100 * (at.after_us / at.before_us - 1)) : ""});
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

std::string against_ops_text(const TraceComparison& comparison, std::size_t top, bool bold) {
  TextTable table{"Ops, largest change first",
                  "count",
                  "GPU ms",
                  "predicted",
                  "change",
                  "host ms",
                  "predicted",
                  "change"};
  const std::size_t shown = std::min(top, comparison.ops.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& at = comparison.ops[i];
    table.row({op_title(at.op), counts_text(at), milliseconds(at.before_us),
               milliseconds(at.after_us), signed_ms(at.change_us()),
               milliseconds(at.host_before_us), milliseconds(at.host_after_us),
               signed_ms(at.host_change_us())});
  }
  if (table.empty()) return "";
  std::string text = "\n" + table.text(bold);
  if (comparison.ops.size() > shown) {
    text += fmt::format("  ({} more)\n", comparison.ops.size() - shown);
  }
  return text;
}

}  // namespace

Json comparison_json(const TraceComparison& comparison, const std::string& before,
                     const std::string& after) {
  Json json = document(schemas::kTraceComparison);
  json.update({{"before", before},
               {"after", after},
               {"steps_before", comparison.steps_before},
               {"steps_after", comparison.steps_after},
               {"step_before_us", rounded(comparison.step_before_us)},
               {"step_after_us", rounded(comparison.step_after_us)},
               {"change_us", rounded(comparison.step_after_us - comparison.step_before_us)},
               {"terms", Json::array()},
               {"steps", Json::array()}});
  for (const auto& term : comparison.terms) {
    json["terms"].push_back({{"term", term.name},
                             {"before_us", rounded(term.before_us)},
                             {"after_us", rounded(term.after_us)},
                             {"change_us", rounded(term.after_us - term.before_us)}});
  }
  for (const auto& step : comparison.steps) {
    json["steps"].push_back({{"before", step.before},
                             {"after", step.after},
                             {"before_us", rounded(step.before_us)},
                             {"after_us", rounded(step.after_us)}});
  }
  json["ops"] = changes_json(comparison.ops);
  json["kernels"] = changes_json(comparison.kernels);
  json["warnings"] = comparison.warnings;
  return json;
}

std::string comparison_text(const TraceComparison& comparison, const std::string& before,
                            const std::string& after, std::size_t top, bool bold) {
  TextList head;
  head.row("before", fmt::format("{}, {}", before, counted(comparison.steps_before, "step")));
  head.row("after", fmt::format("{}, {}", after, counted(comparison.steps_after, "step")));
  std::string text = warnings_text(comparison.warnings) + "\n" + head.text();
  TextTable terms{"Mean step", "before ms", "after ms", "change ms"};
  for (const auto& term : comparison.terms) {
    terms.row({term.name, milliseconds(term.before_us), milliseconds(term.after_us),
               signed_ms(term.after_us - term.before_us)});
  }
  terms.row({"step", milliseconds(comparison.step_before_us),
             milliseconds(comparison.step_after_us),
             signed_ms(comparison.step_after_us - comparison.step_before_us)});
  text += "\n" + terms.text(bold);
  if (comparison.ops.empty() && comparison.kernels.empty()) {
    text += "\n  No op differs in its count or in its time on the device.\n";
  }
  text += changes_text(comparison.ops, "Ops, per step", top, bold);
  text += changes_text(comparison.kernels, "Kernels, per step", top, bold);
  return text;
}

Json against_json(const TraceComparison& comparison, const std::string& trace) {
  Json json = {{"trace", trace},
               {"measured_steps", comparison.steps_before},
               {"measured_us", rounded(comparison.step_before_us)},
               {"predicted_us", rounded(comparison.step_after_us)},
               {"change_us", rounded(comparison.step_after_us - comparison.step_before_us)},
               {"error", error_json(comparison.step_before_us, comparison.step_after_us)},
               {"terms", against_terms_json(comparison.terms)},
               {"host_terms", against_terms_json(comparison.host_terms)},
               {"families", Json::array()},
               {"ops", Json::array()}};
  for (const auto& at : comparison.families) {
    Json row = {{"family", at.kernel}};
    row.update(against_row_json(at));
    json["families"].push_back(std::move(row));
  }
  for (const auto& at : comparison.ops) {
    Json row = {{"op", at.op}};
    row.update(against_row_json(at));
    row.update({{"measured_host_us", rounded(at.host_before_us)},
                {"predicted_host_us", rounded(at.host_after_us)},
                {"host_change_us", rounded(at.host_change_us())},
                {"families", Json::array()}});
    for (const auto& family : comparison.kernels) {
      if (family.op != at.op) continue;
      Json of_op = {{"family", family.kernel}};
      of_op.update(against_row_json(family));
      row["families"].push_back(std::move(of_op));
    }
    json["ops"].push_back(std::move(row));
  }
  json["warnings"] = comparison.warnings;
  return json;
}

std::string against_text(const TraceComparison& comparison, const std::string& trace,
                         std::size_t top, bool bold) {
  TextList head;
  head.row("against", fmt::format("{}, {}", trace, counted(comparison.steps_before, "step")));
  return warnings_text(comparison.warnings) + "\n" + head.text() +
         against_terms_text("Mean step, the device", comparison.terms, comparison, bold) +
         against_terms_text("Mean step, the host", comparison.host_terms, comparison, bold) +
         against_families_text(comparison, bold) + against_ops_text(comparison, top, bold);
}

}  // namespace perfmodel::cli
