#include "sync/sync_study.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/file_name.hpp"
#include "base/impossible.hpp"

namespace perfmodel::sync {
namespace {

constexpr std::int64_t kCommitsPerWorker = 1000, kUsualTau = 40, kUsualStaleness = 3;

using Question = SyncQuestion;

constexpr FieldRange kFromZero = {.low = 0}, kAboveZero = {.low = 1e-9}, kCommits = {1, 1e9};

constexpr SyncField kSyncFields[] = {
    {"workers", &Question::workers,
     "Workers: a file (docs/sync.md), or name:count[:step_us[:commit_us]],...; a name without a "
     "step is a GPU that runs --graph",
     "FILE|LIST"},
    {"graph", &Question::graph, "Graph of one worker's step", "GRAPH"},
    {"gpu", &Question::gpus, "Instead of --workers: the GPU of each rank", "NAME,..."},
    {"host_scale", &Question::host_scale, "Multiplies the host's time: one value, or one per rank",
     "X,...", kFromZero},
    {"link_gb_per_s", &Question::link_gb_per_s,
     "Bandwidth of the workers' links: one value, or one per rank", "X,...", kAboveZero},
    {"straggler", &Question::straggler,
     "Distribution of step times: lognormal:DEVIATION, uniform:SHARE, exponential:SHARE, "
     "pause:PROBABILITY:FACTOR",
     "TEXT"},
    {"seed", &Question::seed, "Seed of the stragglers (default: 0)", "N"},
    {"exchange", &Question::exchange, "What commits pass through (default: direct)",
     "{direct,servers,all-reduce}"},
    {"servers",
     &Question::servers,
     "Parameter servers, each with an equal part of the model",
     "N",
     {1, 1e6}},
    {"server_gb_per_s", &Question::server_gb_per_s, "Bandwidth of each server's card", "X",
     kAboveZero},
    {"server_commit_us", &Question::server_commit_us,
     "Time that one server alone takes for a commit of the whole model", "US", kFromZero},
    {"model_bytes",
     &Question::model_bytes,
     "What a commit moves (default: fp32 gradients of the graph)",
     "N",
     {.low = 1}},
    {"scheme", &Question::schemes, "bsp, asp, ssp, local_sgd, adacomm, adsp, or all (the default)",
     "NAME,..."},
    {"target_updates", &Question::target_updates,
     "Commits of all workers to run to (default: 1,000 per worker)", "N", kCommits},
    {"tau", &Question::tau,
     "Steps per commit of local_sgd (default: 40) and first ones of adacomm (default: found)", "N",
     kCommits},
    {"staleness", &Question::staleness,
     "Steps that ssp lets a worker be ahead, or inf (default: 3)", "S"},
    {"period",
     &Question::period_s,
     "Period of adsp and adacomm in seconds",
     "SECONDS",
     {1e-9, 1e9}},
    {"commits_per_period", &Question::commits_per_period,
     "Rate of adsp: one value, or one per worker (default: found)", "N,...", kAboveZero},
    {"loss_model", &Question::loss_model,
     "Steps to the target as a function of tau and staleness (docs/sync.md)", "FILE"},
    {"slowest",
     &Question::slowdowns,
     "Sweep: the last worker's steps take so many times as long",
     "X,...",
     {.low = 1e-6}},
};

Result<SyncPlan> read_plan(const SyncQuestion& question) {
  if (!question.gpus.empty()) {
    SyncPlan plan;
    for (const std::string& gpu : question.gpus) {
      plan.groups.push_back(
          {.name = fmt::format("rank {} ({})", plan.groups.size(), file_name(gpu)), .gpu = gpu});
    }
    return plan;
  }
  const std::filesystem::path file = question.workers;
  std::error_code ignored;
  if (file.extension() == ".json" || std::filesystem::is_regular_file(file, ignored)) {
    return read_sync_plan(file);
  }
  PERFMODEL_TRY(groups, parse_workers(question.workers));
  return SyncPlan{.groups = std::move(*groups)};
}

// Values per rank need a group per rank.
void one_group_per_rank(SyncPlan& plan) {
  std::vector<WorkerGroup> ranks;
  for (const WorkerGroup& group : plan.groups) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      ranks.push_back(group);
      WorkerGroup& rank = ranks.back();
      if (!rank.gpu && !rank.step_us) rank.gpu = group.name;
      if (group.count > 1) rank.name = fmt::format("{}/{}", group.name, i);
      rank.count = 1;
    }
  }
  plan.groups = std::move(ranks);
}

// Sets a value that is given once for all ranks, or once per rank.
Result<void> set_of_rank(const std::vector<double>& values, std::string_view flag, std::size_t rank,
                         std::size_t ranks, auto& value) {
  if (values.empty()) return {};
  if (values.size() != 1 && values.size() != ranks) {
    return impossible(fmt::format("one value of {} or one per rank ({})", flag, ranks),
                      values.size());
  }
  value = values.size() == 1 ? values.front() : values[rank];
  return {};
}

Result<void> set_groups(const SyncQuestion& question, SyncPlan& plan) {
  const std::size_t ranks = plan.groups.size();
  for (std::size_t i = 0; i < ranks; ++i) {
    WorkerGroup& group = plan.groups[i];
    auto set = set_of_rank(question.host_scale, "--host-scale", i, ranks, group.host_scale);
    if (set) {
      set = set_of_rank(question.link_gb_per_s, "--link-gb-per-s", i, ranks, group.link_gb_per_s);
    }
    if (!set) return set;
    if (question.straggler.empty() || group.straggler) continue;
    PERFMODEL_TRY(straggler, Straggler::parse(question.straggler));
    group.straggler = *straggler;
  }
  return {};
}

Result<std::vector<Scheme>> asked_schemes(const SyncQuestion& question, Exchange exchange,
                                          std::vector<std::string>& notes) {
  std::vector<Scheme> schemes;
  for (const std::string& name : question.schemes) {
    if (name != "all") {
      PERFMODEL_TRY(scheme, scheme_of(name));
      schemes.push_back(*scheme);
      continue;
    }
    for (std::size_t i = 0; i < scheme_names().size(); ++i) {
      const auto scheme = static_cast<Scheme>(i);
      const bool alone =
          scheme == Scheme::kAsp || scheme == Scheme::kSsp || scheme == Scheme::kAdsp;
      if (exchange == Exchange::kAllReduce && alone) continue;
      schemes.push_back(scheme);
    }
    if (exchange == Exchange::kAllReduce) {
      notes.emplace_back("asp, ssp and adsp have no all-reduce: their workers do not meet");
    }
  }
  return schemes;
}

Result<std::optional<std::int64_t>> staleness_of(const SyncQuestion& question) {
  if (!question.staleness) return std::optional(kUsualStaleness);
  const std::string& text = *question.staleness;
  if (text == "inf") return std::optional<std::int64_t>();
  if (std::int64_t value = 0; read_decimal(text, value) && value >= 0) return std::optional(value);
  return impossible("--staleness inf or a whole number from 0", "\"" + text + "\"");
}

Result<SchemeReport> run_scheme(const SyncQuestion& question, const SyncJob& job, Scheme scheme,
                                const LossModel& loss) {
  PERFMODEL_TRY(staleness, staleness_of(question));
  SchemeSettings settings{.scheme = scheme,
                          .tau = question.tau.value_or(kUsualTau),
                          .staleness = *staleness,
                          .period_us = question.period_s * 1e6};
  const auto& rates = question.commits_per_period;
  const bool is_set = scheme == Scheme::kAdsp ? !rates.empty() : question.tau.has_value();
  if (is_set) {
    if (!rates.empty()) settings.commits_per_period = rates;
  } else {
    PERFMODEL_TRY(tuned_settings, tuned(job, settings, loss));
    settings = std::move(*tuned_settings);
  }
  const auto commits = question.target_updates.value_or(
      kCommitsPerWorker * static_cast<std::int64_t>(job.workers.size()));
  PERFMODEL_TRY(run, run_sync(job, settings, {.commits = commits}, loss));
  PERFMODEL_TRY(reached, time_to_target(job, settings, *run, loss));
  return SchemeReport{std::move(settings), std::move(*run), *reached};
}

Result<std::vector<SchemeReport>> run_schemes(const SyncQuestion& question, const SyncJob& job,
                                              const std::vector<Scheme>& schemes,
                                              const LossModel& loss) {
  std::vector<SchemeReport> reports;
  for (const Scheme scheme : schemes) {
    PERFMODEL_TRY(report, run_scheme(question, job, scheme, loss));
    reports.push_back(std::move(*report));
  }
  return reports;
}

}  // namespace

std::span<const SyncField> sync_fields() { return kSyncFields; }

Result<SyncPlan> plan_of(const SyncQuestion& question) {
  PERFMODEL_TRY(plan, read_plan(question));
  if (question.host_scale.size() > 1 || question.link_gb_per_s.size() > 1) {
    one_group_per_rank(*plan);
  }
  PERFMODEL_TRY_TO(set_groups(question, *plan));
  if (!question.exchange.empty()) {
    PERFMODEL_TRY(exchange, exchange_of(question.exchange));
    plan->exchange = *exchange;
  }
  if (question.servers) plan->servers = *question.servers;
  if (question.server_gb_per_s) plan->server_nic_gb_per_s = question.server_gb_per_s;
  if (question.server_commit_us) plan->server_commit_us = question.server_commit_us;
  if (question.model_bytes) plan->model_bytes = question.model_bytes;
  const bool sets_servers =
      question.servers || question.server_gb_per_s || question.server_commit_us;
  if (sets_servers && plan->exchange != Exchange::kServers) {
    return impossible("--exchange servers with flags of servers",
                      exchange_name(plan->exchange.value_or(Exchange::kDirect)));
  }
  return plan;
}

Result<SyncReport> compare_schemes(const SyncQuestion& question, PlannedJob planned,
                                   const LossModel& loss) {
  SyncReport report{.job = std::move(planned.job), .loss = loss, .notes = std::move(planned.notes)};
  report.job.seed = question.seed;
  PERFMODEL_TRY(schemes, asked_schemes(question, report.job.exchange, report.notes));
  PERFMODEL_TRY(reports, run_schemes(question, report.job, *schemes, loss));
  report.schemes = std::move(*reports);
  for (const double slowdown : question.slowdowns) {
    SyncJob slowed = report.job;
    slowed.workers.back().step_us *= slowdown;
    PERFMODEL_TRY(point, run_schemes(question, slowed, *schemes, loss));
    report.sweep.push_back({slowdown, std::move(*point)});
  }
  return report;
}

Result<std::vector<AnsweredCase>> answer_cases(const std::vector<SyncCase>& cases,
                                               const LossModel& loss) {
  std::vector<AnsweredCase> answers;
  for (const SyncCase& one : cases) {
    auto run = run_sync(one.job, one.settings, one.target, loss);
    if (!run) {
      Error error = run.error();
      error.message = fmt::format("case \"{}\": {}", one.id, error.message);
      return Unexpected{std::move(error)};
    }
    answers.push_back({one, std::move(*run)});
  }
  return answers;
}

}  // namespace perfmodel::sync
