#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/each_name.hpp"
#include "gate/gate.hpp"

namespace perfmodel {
namespace {

std::string signed_ms(double us) { return fmt::format("{:+.3f}", us / 1e3); }

// A limit as it was asked for: "3 %", "99.5 %".
std::string limit_text(double share) { return fmt::format("{:.4g} %", 100 * share); }

// "1.2 % faster" or "3.1 % slower".
std::string faster_or_slower(double change) {
  if (change == 0) return "as fast as before";
  return percent(std::abs(change)) + (change > 0 ? " slower" : " faster");
}

std::string verdict_of_steps(const GateReport& report) {
  const StepChange& steps = *report.steps;
  std::string text;
  if (steps.low) {
    text = fmt::format("{} ({} to {} at {} each)", faster_or_slower(steps.change),
                       signed_percent(*steps.low), signed_percent(*steps.high),
                       limit_text(report.limits.confidence));
  } else {
    text = fmt::format("{} and {} steps, {} of each are the fewest", steps.steps_before,
                       steps.steps_after, kFewestSteps);
  }
  if (report.verdict != GateVerdict::kCannotTell) return text;
  if (!steps.steps_needed) return text + "; the times are printed too coarsely for any number";
  return text + fmt::format("; about {} steps of each would tell", *steps.steps_needed);
}

std::string verdict_of_gpus(const GateReport& report) {
  const auto worst = std::ranges::max_element(report.gpus, {}, &GateOnGpu::change);
  return fmt::format("{} on {}", faster_or_slower(worst->change()), worst->gpu);
}

std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

template <class Result>
std::string markdown_table(const std::vector<Result>& rows, const ResultFields<Result>& fields) {
  std::string text = "|", line = "|";
  for (const auto& field : fields) {
    text += fmt::format(" {} |", field.title);
    line += &field == &fields.front() ? " --- |" : " ---: |";
  }
  text += "\n" + line + "\n";
  for (const Result& row : rows) {
    text += '|';
    for (const auto& field : fields) text += fmt::format(" {} |", markdown_cell(field.text(row)));
    text += '\n';
  }
  return text;
}

const ResultFields<StepChange> kGatedStepFields = {
    PERFMODEL_FIELDS(StepChange, steps_before, steps_after, before_us, after_us, change, low, high),
    {"outliers_before", &StepChange::beyond_before},
    {"outliers_after", &StepChange::beyond_after},
    {"steps_needed", &StepChange::steps_needed}};

OrderedJson side_json(const GateSide& side) {
  return {{"file", side.file}, {"left_out", side.left_out}};
}

}  // namespace

const ResultFields<GateSum> kGateSumFields = {
    {"part", &GateSum::name, "Per step, side by side"},
    {"before_us", &GateSum::before_us, "before ms"},
    {"after_us", &GateSum::after_us, "after ms"},
    {"change_us", &GateSum::change_us, "change ms", signed_ms}};

const ResultFields<GateReason> kGateReasonFields = {
    {"reason", &GateReason::name, "What changed"},
    {"count_before", &GateReason::count_before, "count"},
    {"count_after", &GateReason::count_after, "then"},
    {"device_change_us", &GateReason::device_change_us, "GPU ms", signed_ms},
    {"host_change_us", &GateReason::host_change_us, "host ms", signed_ms},
    {"wait_change_us", &GateReason::wait_change_us, "waits ms", signed_ms},
    {"cost_us", &GateReason::cost_us, "costs ms", signed_ms}};

const ResultFields<GateOnGpu> kGateOnGpuFields = {
    {"gpu", &GateOnGpu::gpu, "GPU"},
    {"verdict", &GateOnGpu::verdict, "verdict"},
    {"before_us", &GateOnGpu::before_us, "before ms"},
    {"after_us", &GateOnGpu::after_us, "after ms"},
    {"change_us", &GateOnGpu::change_us, "change ms", signed_ms},
    {"change", &GateOnGpu::change, "change", [](double share) { return signed_percent(share); }},
    {"sums", [](const GateOnGpu& one) { return json_list(one.cost.sums, kGateSumFields); }},
    {"reasons",
     [](const GateOnGpu& one) { return json_list(one.cost.reasons, kGateReasonFields); }},
    {"rest_us", [](const GateOnGpu& one) { return one.cost.rest_us; }}};

std::string verdict_sentence(const GateReport& report) {
  return fmt::format("{}: {}; the threshold is {}", to_string(report.verdict),
                     report.steps ? verdict_of_steps(report) : verdict_of_gpus(report),
                     limit_text(report.limits.threshold));
}

std::string steps_sentence(const GateReport& report) {
  if (!report.steps) return "";
  return fmt::format("{} of {} ms, then {} of {} ms", report.steps->steps_before,
                     milliseconds(report.steps->before_us), report.steps->steps_after,
                     milliseconds(report.steps->after_us));
}

std::string sum_sentence(const GateOnGpu& one) {
  return fmt::format("these cost {} ms, all else {} ms",
                     signed_ms(one.change_us() - one.cost.rest_us), signed_ms(one.cost.rest_us));
}

OrderedJson gate_json(const GateReport& report) {
  return {
      {"kind", report.kind},
      {"verdict", to_string(report.verdict)},
      {"exit_status", exit_status(report.verdict)},
      {"threshold", report.limits.threshold},
      {"confidence", report.limits.confidence},
      {"before", side_json(report.before)},
      {"after", side_json(report.after)},
      {"steps", report.steps ? json_object(*report.steps, kGatedStepFields) : OrderedJson(nullptr)},
      {"gpus", json_list(report.gpus, kGateOnGpuFields)},
      {"warnings", report.warnings}};
}

std::string gate_markdown(const GateReport& report) {
  std::string text = fmt::format("### Speed gate: {}\n", verdict_sentence(report));
  for (const GateSide* side : {&report.before, &report.after}) {
    text += fmt::format("\n- {}: `{}`{}", side == &report.before ? "before" : "after", side->file,
                        side->left_out.empty() ? "" : ", left out " + side->left_out);
  }
  text += report.steps ? "\n- steps: " + steps_sentence(report) + "\n" : "\n";
  if (!report.gpus.empty()) {
    text += '\n' + markdown_table(report.gpus, named_fields(kGateOnGpuFields,
                                                            {"gpu", "verdict", "before_us",
                                                             "after_us", "change_us", "change"}));
  }
  for (const GateOnGpu& one : report.gpus) {
    text += fmt::format("\n<details><summary>{}: {} ms</summary>\n\n", one.gpu,
                        signed_ms(one.change_us()));
    if (!one.cost.reasons.empty()) {
      text += markdown_table(one.cost.reasons, kGateReasonFields);
      text += fmt::format("\n{}\n\n", sum_sentence(one));
    }
    text += markdown_table(one.cost.sums, kGateSumFields) + "\n</details>\n";
  }
  for (const std::string& warning : report.warnings) text += "\n> " + warning + "\n";
  return text;
}

}  // namespace perfmodel
