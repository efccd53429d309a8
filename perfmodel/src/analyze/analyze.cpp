#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "analyze/predicted_step.hpp"
#include "analyze/rules.hpp"
#include "analyze/trace_step.hpp"
#include "base/enum_name.hpp"
#include "perfmodel/detail/findings.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/replay.hpp"

namespace perfmodel {
namespace {

using findings::KernelFact;
using findings::Repair;
using findings::Rescheduler;
using findings::Rule;
using findings::StepFacts;
using findings::Suspicion;
using findings::TraceStep;

constexpr AnalyzeRule kUnbalancedTables = {
    "unbalanced-tables",
    "several ranks: lookups and updates of tables take 20 % longer on one than on average, and 2 % "
    "of its step"};

// TorchRec's planner aims at less; below it the spread of lookups within a batch is as large.
constexpr double kLeastExcess = 0.2, kLeastShareOfTables = 0.02;

bool is_of_tables(const KernelFact& kernel) {
  return kernel.family == KernelFamily::kEmbeddingForward ||
         kernel.family == KernelFamily::kEmbeddingBackward;
}

double us_of_tables(const StepFacts& step) {
  double sum = 0;
  for (const KernelFact& kernel : step.kernels) sum += is_of_tables(kernel) ? kernel.time_us : 0;
  return sum / static_cast<double>(step.steps);
}

// The rank whose embedding tables take longest, with its step scheduled again with the mean of all
// ranks: the gain of the job if that rank limits it. Errors as in scheduling.
Result<std::optional<Finding>> find_unbalanced_tables(
    std::span<const std::unique_ptr<TraceStep>> ranks, std::span<const std::string> names) {
  std::vector<double> us;
  for (const auto& rank : ranks) us.push_back(us_of_tables(rank->facts()));
  if (us.size() < 2) return std::optional<Finding>();
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  const auto most = static_cast<std::size_t>(std::ranges::max_element(us) - us.begin());
  const StepFacts& facts = ranks[most]->facts();
  const double step_us = facts.span_us / static_cast<double>(facts.steps);
  if (us[most] < (1 + kLeastExcess) * mean || us[most] - mean < kLeastShareOfTables * step_us) {
    return std::optional<Finding>();
  }
  Repair repair;
  std::string where;
  for (std::size_t i = 0; i < facts.kernels.size(); ++i) {
    const KernelFact& kernel = facts.kernels[i];
    if (!is_of_tables(kernel)) continue;
    repair.kernel_us[i] = kernel.time_us * mean / us[most];
    if (where.empty()) where = names[most] + ": " + facts.path(kernel.op);
  }
  PERFMODEL_TRY(now, ranks[most]->step_us({}));
  PERFMODEL_TRY(then, ranks[most]->step_us(repair));
  const double gain = *now - *then, share = *now > 0 ? gain / *now : 0;
  return std::optional<Finding>(
      {.rule = kUnbalancedTables.name,
       .title = fmt::format("Embedding tables take {:.0f} us per step on {}, {:.0f} us on average "
                            "of the given ranks",
                            us[most], names[most], mean),
       .where = where,
       .share = step_us > 0 ? us[most] / step_us : 0,
       .gain_us = gain,
       .gain_share = share,
       .confidence = Confidence::kMedium,
       .advice = "Place the tables anew: `shard` searches for a balanced plan. The gain is for "
                 "this rank's step, and the job's if this rank is the slowest",
       .folded = share < 0.02});
}

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
  std::vector<std::unique_ptr<TraceStep>> steps;
  std::vector<std::string> names;
  for (const Trace& trace : ranks) {
    PERFMODEL_TRY(step, TraceStep::create(trace, gpu, options.iterations));
    steps.push_back(std::move(*step));
    names.push_back(trace.rank >= 0 ? fmt::format("rank {}", trace.rank) : trace.source);
  }
  PERFMODEL_TRY(found, find_unbalanced_tables(steps, names));
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
    made.push_back(kUnbalancedTables);
    return made;
  }();
  return rules;
}

Result<Findings> analyze(std::span<const Trace> ranks, const Gpu* gpu,
                         const AnalyzeOptions& options) {
  if (ranks.empty()) return decline("expected a trace, found none");
  PERFMODEL_TRY_TO(check_rules(options));
  PERFMODEL_TRY(step, TraceStep::create(ranks[0], gpu, options.iterations));
  PERFMODEL_TRY(made, findings_of((*step)->facts(), **step, gpu, options));
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
  if (ranks.size() > 1 && asks_for(options, kUnbalancedTables.name)) {
    PERFMODEL_TRY_TO(add_unbalanced_tables(ranks, gpu, options, made->findings));
  }
  sort_by_gain(made->findings);
  return made;
}

Result<Findings> analyze(std::span<const RankInput> ranks, const Gpu& gpu,
                         const AnalyzeOptions& options) {
  if (ranks.empty()) return decline("expected a graph, found none");
  PERFMODEL_TRY_TO(check_rules(options));
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
  PERFMODEL_TRY(made, findings_of(facts, **step, &gpu, options));
  if (job->job && asks_for(options, findings::kStraggler.name)) {
    add_straggler(*job->job, "job of the given ranks", made->findings);
  }
  made->warnings = job->ranks[0].warnings;
  made->warnings.insert(made->warnings.end(), job->warnings.begin(), job->warnings.end());
  sort_by_gain(made->findings);
  return made;
}

}  // namespace perfmodel
