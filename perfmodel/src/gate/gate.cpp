#include "gate/gate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "analyze/predicted_step.hpp"
#include "analyze/trace_step.hpp"
#include "base/contains.hpp"
#include "base/decimal_number.hpp"
#include "base/file_name.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/predict.hpp"
#include "whatif/target_inputs.hpp"

namespace perfmodel {
namespace {

// "3%" or "0.5 %" as a share; nothing: no percentage between 0 and 100.
std::optional<double> share_of(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  double percent = 0;
  if (!read_decimal(text, percent) || !(percent > 0 && percent < 100)) return std::nullopt;
  return percent / 100;
}

std::string refuse_share(std::string_view text) {
  return share_of(text) ? std::string()
                        : fmt::format("expected a percentage such as 3%, found {}", text);
}

std::string refuse_confidence(std::string_view text) {
  const auto share = share_of(text);
  return share && *share > 0.5
             ? std::string()
             : fmt::format("expected more than 50% and less than 100%, found {}", text);
}

Result<GateReport> empty_report(const GateQuestion& question) {
  const std::string confidence = question.confidence.empty() ? "99%" : question.confidence;
  for (const std::string& reason :
       {refuse_share(question.threshold), refuse_confidence(confidence)}) {
    if (!reason.empty()) return decline(reason);
  }
  return GateReport{
      .before = {file_name(question.before), {}},
      .after = {file_name(question.after), {}},
      .limits = {.threshold = *share_of(question.threshold), .confidence = *share_of(confidence)}};
}

void judge(const StepSample& before, const StepSample& after, GateReport& report) {
  report.steps = judge_steps(before, after, report.limits);
  report.verdict = report.steps->verdict;
  const double added = report.steps->beyond_after - report.steps->beyond_before;
  if (!report.steps->low || added <= report.limits.threshold / 2) return;
  report.warnings.push_back(fmt::format(
      "outliers, which do not count, take {} of the new run's time and {} of the old one's",
      percent(report.steps->beyond_after), percent(report.steps->beyond_before)));
}

StepSample sample_of(const StepLog& log) {
  StepSample sample{.resolution_us = log.resolution_us};
  for (const LoggedStep& step : log.steps) sample.us.push_back(step.us);
  return sample;
}

// Recorded steps, their schedules and the reasons of the change.
Result<void> gate_traces(const Trace& before, const Trace& after, GateReport& report) {
  StepSample samples[2];
  std::unique_ptr<findings::TraceStep> steps[2];
  double step_us[2] = {};
  PERFMODEL_TRY(gpu, gpu_of_trace(after.gpu_name()));
  for (int i = 0; i < 2; ++i) {
    const Trace& trace = i == 0 ? before : after;
    PERFMODEL_TRY(summed, perfmodel::report(trace));
    for (const auto& iteration : summed->iterations) samples[i].us.push_back(iteration.wall_us);
    PERFMODEL_TRY(step, findings::TraceStep::create(trace, *gpu ? &**gpu : nullptr, {}));
    PERFMODEL_TRY(us, (*step)->step_us({}));
    step_us[i] = *us;
    steps[i] = std::move(*step);
  }
  judge(samples[0], samples[1], report);
  PERFMODEL_TRY(cost, step_cost({steps[0]->facts(), *steps[0], step_us[0]},
                                {steps[1]->facts(), *steps[1], step_us[1]}));
  if (before.gpu_name() != after.gpu_name()) {
    report.warnings.push_back(fmt::format("the traces are of different GPUs: {} and {}",
                                          before.gpu_name(), after.gpu_name()));
  }
  report.gpus.push_back({.gpu = std::string(*gpu ? (*gpu)->name : after.gpu_name()),
                         .before_us = step_us[0],
                         .after_us = step_us[1],
                         .cost = std::move(*cost),
                         .verdict = report.verdict});
  return {};
}

/// One program on all GPUs.
struct PredictedProgram {
  TargetInputs inputs;
  std::vector<RankInput> ranks;
};

Result<void> load_program(const GateQuestion& question, RecordedProgram program,
                          PredictedProgram& made) {
  PERFMODEL_TRY(models, choose_kernel_models(question.models));
  made.inputs.chosen = std::move(*models);
  made.inputs.program = std::move(program);
  auto loaded = load_targets({.gpu = {},
                              .gpus = question.gpus,
                              .overheads = question.overheads,
                              .models = question.models,
                              .topology = question.topology},
                             made.inputs);
  if (!loaded) return loaded;
  for (const LoadedTarget& target : made.inputs.loaded) {
    made.ranks.push_back({.graph = &made.inputs.program.graph,
                          .table = target.target.overheads,
                          .options = target.target.options});
  }
  return {};
}

Result<std::vector<std::string>> unmodelled_ops(const RankInput& rank, const Gpu& gpu) {
  PERFMODEL_TRY(predicted, predict(*rank.graph, gpu, *rank.table, rank.options));
  std::vector<std::string> names;
  for (const auto& op : predicted->coverage.unmodelled_ops) names.push_back(op.op);
  return names;
}

// Ops without a model that only the new program has leave the change open.
Result<std::string> warning_of_new_ops(const RankInput& before, const RankInput& after,
                                       const Gpu& gpu) {
  PERFMODEL_TRY(old_names, unmodelled_ops(before, gpu));
  PERFMODEL_TRY(new_names, unmodelled_ops(after, gpu));
  std::vector<std::string> names;
  for (const std::string& name : *new_names) {
    if (!contains(*old_names, name)) names.push_back(name);
  }
  if (names.empty()) return std::string();
  return fmt::format("ops without a model in the new program alone: {}", fmt::join(names, ", "));
}

Result<GateOnGpu> gate_on(const Gpu& gpu, const RankInput& before, const RankInput& after,
                          double threshold) {
  PERFMODEL_TRY(from, findings::PredictedStep::create(before, gpu));
  PERFMODEL_TRY(to, findings::PredictedStep::create(after, gpu));
  PERFMODEL_TRY(before_us, (*from)->step_us({}));
  PERFMODEL_TRY(after_us, (*to)->step_us({}));
  PERFMODEL_TRY(
      cost, step_cost({(*from)->facts(), **from, *before_us}, {(*to)->facts(), **to, *after_us}));
  GateOnGpu made{
      .gpu = gpu.name, .before_us = *before_us, .after_us = *after_us, .cost = std::move(*cost)};
  made.verdict = made.change() > threshold ? GateVerdict::kSlower : GateVerdict::kPass;
  return made;
}

Result<void> gate_predictions(const GateQuestion& question, std::vector<RecordedProgram> programs,
                              GateReport& report) {
  PredictedProgram before, after;
  for (auto* one : {&before, &after}) {
    PERFMODEL_TRY_TO(load_program(question, std::move(programs[one == &after]), *one));
    add_each_once(report.warnings, one->inputs.warnings);
  }
  report.verdict = GateVerdict::kPass;
  for (std::size_t i = 0; i < after.ranks.size(); ++i) {
    const Gpu& gpu = after.inputs.loaded[i].target.gpu;
    PERFMODEL_TRY(made, gate_on(gpu, before.ranks[i], after.ranks[i], report.limits.threshold));
    PERFMODEL_TRY(unknown, warning_of_new_ops(before.ranks[i], after.ranks[i], gpu));
    if (!unknown->empty()) {
      add_once(report.warnings, *unknown);
      if (made->verdict == GateVerdict::kPass) made->verdict = GateVerdict::kCannotTell;
    }
    report.gpus.push_back(std::move(*made));
  }
  const auto is = [&](GateVerdict verdict) {
    return std::ranges::any_of(report.gpus,
                               [&](const GateOnGpu& one) { return one.verdict == verdict; });
  };
  if (is(GateVerdict::kCannotTell)) report.verdict = GateVerdict::kCannotTell;
  if (is(GateVerdict::kSlower)) report.verdict = GateVerdict::kSlower;
  for (const auto* one : {&before, &after}) PERFMODEL_TRY_TO(one->inputs.chosen.check());
  return {};
}

constexpr GateField kGateFields[] = {
    {"threshold", &GateQuestion::threshold, "The slow-down that must not pass", "PERCENT",
     FieldRange{}, "", refuse_share},
    {"confidence", &GateQuestion::confidence,
     "How sure a verdict on measured steps must be (default: 99%)", "PERCENT", FieldRange{}, "",
     refuse_confidence},
    {"gpus", &GateQuestion::gpus, "Predict both programs on these GPUs; graphs need it",
     "NAME,..."},
    {"topology", &GateQuestion::topology,
     "How the GPUs are connected: a known name or a file (default: the usual node)", "NAME"},
    {"unit", &GateQuestion::unit, "Of logs whose numbers have none", "UNIT", {}, "us ms s"},
    {"work_per_step", &GateQuestion::work_per_step,
     "Tokens of a GPU (torchtitan) or samples (DeepSpeed) of a step, for logs of rates without "
     "time stamps",
     "N", FieldRange{1e-300, 1e300}},
};

}  // namespace

std::span<const GateField> gate_fields() { return kGateFields; }

Result<GateReport> gate_logs(const GateQuestion& question) {
  PERFMODEL_TRY(report, empty_report(question));
  if (!question.gpus.empty() || !question.topology.empty()) {
    return decline("expected graphs or traces with --gpus and --topology, found a log",
                   question.before);
  }
  report->kind = "logs";
  StepSample samples[2];
  std::int64_t per_record[2] = {};
  for (int i = 0; i < 2; ++i) {
    GateSide& side = i == 0 ? report->before : report->after;
    PERFMODEL_TRY(log,
                  read_step_log(i == 0 ? question.before : question.after,
                                {.unit = question.unit, .work_per_step = question.work_per_step}));
    samples[i] = sample_of(*log);
    per_record[i] = log->steps_per_record;
    side.left_out = left_out_text(*log);
    for (const std::string& warning : log->warnings) {
      report->warnings.push_back(fmt::format("{} run: {}", i == 0 ? "old" : "new", warning));
    }
  }
  judge(samples[0], samples[1], *report);
  if (per_record[0] != per_record[1]) {
    report->warnings.push_back(
        fmt::format("records are means of {} steps in the old log and of {} "
                    "in the new one",
                    per_record[0], per_record[1]));
  }
  return report;
}

Result<GateReport> gate_programs(const GateQuestion& question,
                                 std::vector<RecordedProgram> programs) {
  PERFMODEL_TRY(report, empty_report(question));
  if (!question.unit.empty() || question.work_per_step) {
    return decline("expected logs with --unit and --work-per-step, found a graph or a trace",
                   question.before);
  }
  Result<void> done;
  if (!question.gpus.empty()) {
    if (!question.confidence.empty()) {
      return decline(
          "--confidence: expected measured steps, found predictions (--gpus), which have no noise",
          question.before);
    }
    report->kind = "predictions";
    done = gate_predictions(question, std::move(programs), *report);
  } else if (programs[0].trace && programs[1].trace) {
    report->kind = "traces";
    done = gate_traces(*programs[0].trace, *programs[1].trace, *report);
  } else {
    return decline("expected --gpus for a graph, which holds no times",
                   programs[0].trace ? question.after : question.before);
  }
  if (!done) return Unexpected{done.error()};
  return report;
}

int exit_status(GateVerdict verdict) {
  constexpr int kStatus[] = {0, 3, 4};
  return kStatus[static_cast<std::size_t>(verdict)];
}

}  // namespace perfmodel
