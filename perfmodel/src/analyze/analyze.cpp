#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyze/predicted_step.hpp"
#include "analyze/rules.hpp"
#include "analyze/trace_step.hpp"
#include "analyze/unbalanced_tables.hpp"
#include "base/enum_name.hpp"
#include "perfmodel/detail/findings.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/replay.hpp"

namespace perfmodel {
namespace {

using findings::Rescheduler;
using findings::Rule;
using findings::StepFacts;
using findings::Suspicion;

constexpr double kFolded = 0.02;          // share of the step
constexpr double kMostReplayError = 0.1;  // as `replay` refuses what-ifs beyond it

std::vector<std::string_view> names_of_rules() {
  std::vector<std::string_view> names;
  for (const AnalyzeRule& rule : analyze_rules()) names.push_back(rule.name);
  return names;
}

Result<void> check_rules(const AnalyzeOptions& options) {
  const auto names = names_of_rules();
  for (const std::string& asked : options.rules) {
    if (std::ranges::find(names, asked) != names.end()) continue;
    return fail(ErrorCode::kUnknownName, fmt::format("expected rules out of {}, found \"{}\"",
                                                     fmt::join(names, ", "), asked));
  }
  return {};
}

bool asks_for(const AnalyzeOptions& options, std::string_view rule) {
  return options.rules.empty() || std::ranges::find(options.rules, rule) != options.rules.end();
}

Result<Finding> scheduled(const Rule& rule, Suspicion& found, const StepFacts& facts,
                          const Rescheduler& schedule, double step_us) {
  Finding made{.rule = rule.description.name,
               .title = std::move(found.title),
               .where = std::move(found.where),
               .share = facts.span_us > 0 ? found.share_us / facts.span_us : 0,
               .confidence = found.confidence,
               .advice = std::move(found.advice)};
  if (!found.costs_time) return made;
  PERFMODEL_TRY(repaired, schedule.step_us(found.repair));
  made.gain_us = step_us - *repaired;
  made.gain_share = step_us > 0 ? *made.gain_us / step_us : 0;
  made.folded = made.gain_share < kFolded;
  return made;
}

Result<Findings> findings_of(const StepFacts& facts, const Rescheduler& schedule, const Gpu* gpu,
                             const AnalyzeOptions& options) {
  Findings made;
  PERFMODEL_TRY(step, schedule.step_us({}));
  made.step_us = *step;
  for (const Rule& rule : findings::all_rules()) {
    if (!asks_for(options, rule.description.name)) continue;
    std::vector<Suspicion> found;
    rule.find(facts, gpu, found);
    for (Suspicion& suspicion : found) {
      PERFMODEL_TRY(finding, scheduled(rule, suspicion, facts, schedule, *step));
      made.findings.push_back(std::move(*finding));
    }
  }
  return made;
}

void sort_by_gain(std::vector<Finding>& made) {
  const auto key = [](const Finding& finding) {
    return finding.gain_us.value_or(std::numeric_limits<double>::infinity());
  };
  std::ranges::stable_sort(made,
                           [&](const Finding& a, const Finding& b) { return key(a) > key(b); });
}

// Names the rank that the others wait for.
void add_straggler(const JobReport& job, std::string_view rank, std::vector<Finding>& made) {
  const double share = job.step_us > 0 ? job.straggler_saving_us / job.step_us : 0;
  if (job.straggler < 0 || share < kFolded) return;
  made.push_back(
      {.rule = findings::kStraggler.name,
       .title = fmt::format("The other ranks wait for rank {}; on their own the slowest takes "
                            "{:.1f} % longer than the mean",
                            job.straggler, 100 * job.imbalance),
       .where = std::string(rank),
       .share = share,
       .gain_us = job.straggler_saving_us,
       .gain_share = share,
       .confidence = Confidence::kHigh,
       .advice = "Compare this rank's step with another's (`trace --compare`, `report`): uneven "
                 "tables or batches, a slower host, a throttled GPU"});
}

Result<void> add_unbalanced_tables(std::span<const Trace> ranks, const Gpu* gpu,
                                   const AnalyzeOptions& options, std::vector<Finding>& made) {
  std::vector<std::unique_ptr<findings::TraceStep>> steps;
  std::vector<std::string> names;
  for (const Trace& trace : ranks) {
    PERFMODEL_TRY(step, findings::TraceStep::create(trace, gpu, options.iterations));
    steps.push_back(std::move(*step));
    names.push_back(trace.rank >= 0 ? fmt::format("rank {}", trace.rank) : trace.source);
  }
  PERFMODEL_TRY(found, findings::find_unbalanced_tables(steps, names));
  if (*found) made.push_back(std::move(**found));
  return {};
}

}  // namespace

std::string_view to_string(Confidence confidence) {
  static constexpr std::string_view kNames[] = {"low", "medium", "high"};
  return enum_name(kNames, confidence);
}

std::span<const AnalyzeRule> analyze_rules() {
  static const std::vector<AnalyzeRule> rules = [] {
    std::vector<AnalyzeRule> made;
    for (const Rule& rule : findings::all_rules()) made.push_back(rule.description);
    made.push_back(findings::kStraggler);
    made.push_back(findings::kUnbalancedTables);
    return made;
  }();
  return rules;
}

Result<Findings> analyze(std::span<const Trace> ranks, const Gpu* gpu,
                         const AnalyzeOptions& options) {
  if (ranks.empty()) return fail(ErrorCode::kImpossible, "expected a trace, found none");
  if (auto good = check_rules(options); !good) return Unexpected{good.error()};
  PERFMODEL_TRY(step, findings::TraceStep::create(ranks[0], gpu, options.iterations));
  auto made = findings_of((*step)->facts(), **step, gpu, options);
  if (!made) return made;
  made->measured_us = (*step)->measured_us();
  if (*made->measured_us > 0 &&
      std::abs(made->step_us / *made->measured_us - 1) > kMostReplayError) {
    made->warnings.push_back(fmt::format(
        "scheduled from its own durations the step takes {:.1f} us, recorded were {:.1f} "
        "us: gains are off by as much",
        made->step_us, *made->measured_us));
  }
  if (!gpu) {
    made->warnings.push_back("the GPU is not known: no rule speaks of rooflines and memory");
  } else if (ranks[0].arguments.empty()) {
    made->warnings.push_back(
        "no shapes were recorded (record_shapes=True makes them): no rule speaks of rooflines and "
        "sizes of products");
  }
  if (ranks[0].gpu.empty()) {
    made->warnings.push_back("no device work in the trace: only the host is judged");
  }
  // Oddities of the recording come first.
  const std::vector<std::string>& of_trace = ranks[0].warnings;
  const auto odd =
      of_trace.begin() + static_cast<std::ptrdiff_t>(ranks[0].recording.findings.size());
  made->warnings.insert(made->warnings.begin(), of_trace.begin(), odd);
  made->warnings.insert(made->warnings.end(), odd, of_trace.end());
  if (ranks.size() > 1 && asks_for(options, findings::kStraggler.name)) {
    ReplayOptions replaying;
    replaying.iterations = options.iterations;
    replaying.missing_ranks = true;
    PERFMODEL_TRY(job, replay(ranks, replaying));
    if (job->job) add_straggler(*job->job, "job of the given ranks", made->findings);
    for (const std::string& warning : job->warnings) made->warnings.push_back(warning);
  }
  if (ranks.size() > 1 && asks_for(options, findings::kUnbalancedTables.name)) {
    if (auto done = add_unbalanced_tables(ranks, gpu, options, made->findings); !done) {
      return Unexpected{done.error()};
    }
  }
  sort_by_gain(made->findings);
  return made;
}

Result<Findings> analyze(std::span<const RankInput> ranks, const Gpu& gpu,
                         const AnalyzeOptions& options) {
  if (ranks.empty()) return fail(ErrorCode::kImpossible, "expected a graph, found none");
  if (auto good = check_rules(options); !good) return Unexpected{good.error()};
  PERFMODEL_TRY(step, findings::PredictedStep::create(ranks[0], gpu));
  std::vector<RankInput> plain(ranks.begin(), ranks.end());
  for (RankInput& rank : plain) {
    rank.options.keep_ops = false;
    rank.options.step_range = false;
  }
  PERFMODEL_TRY(job, predict_job(plain, gpu));
  StepFacts facts = (*step)->facts();
  if (!is_from_trace(*ranks[0].graph)) {
    const PredictedMemory& memory = job->ranks[0].memory;
    facts.peak_memory_bytes = memory.needed_bytes();
    facts.device_memory_bytes = memory.device_bytes;
  }
  auto made = findings_of(facts, **step, &gpu, options);
  if (!made) return made;
  if (job->job && asks_for(options, findings::kStraggler.name)) {
    add_straggler(*job->job, "job of the given ranks", made->findings);
  }
  made->warnings = job->ranks[0].warnings;
  made->warnings.insert(made->warnings.end(), job->warnings.begin(), job->warnings.end());
  sort_by_gain(made->findings);
  return made;
}

}  // namespace perfmodel
