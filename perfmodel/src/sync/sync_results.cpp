#include "sync/sync_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perfmodel::sync {
namespace {

using Row = WorkerRow;
using Case = AnsweredCase;

std::string three_digits(double value) { return fmt::format("{:.3g}", value); }
std::string four_digits(double value) { return fmt::format("{:.4g}", value); }
std::string one_decimal_percent(double share) { return percent(share); }

// Sums of decimal numbers without the noise of their last digits.
OrderedJson exact(double value) {
  const double rounded_value = std::round(value * 1e9) / 1e9;
  return rounded_value == 0 ? 0.0 : rounded_value;
}
OrderedJson exact(std::int64_t count) { return count; }

std::string_view scheme_of_settings(const SchemeSettings& settings) {
  return scheme_name(settings.scheme);
}

OrderedJson settings_json(const SchemeSettings& settings) {
  OrderedJson json = OrderedJson::object();
  switch (settings.scheme) {
    case Scheme::kBsp:
    case Scheme::kAsp: break;
    case Scheme::kSsp: json["staleness"] = json_value(settings.staleness); break;
    case Scheme::kAdacomm: json["period_us"] = rounded(settings.period_us); [[fallthrough]];
    case Scheme::kLocalSgd: json["tau"] = settings.tau; break;
    case Scheme::kAdsp:
      json["period_us"] = rounded(settings.period_us);
      json["commits_per_period"] = settings.commits_per_period;
      break;
  }
  return json;
}

// The first s at which `share` of all commits have at most s.
OrderedJson staleness_quantile(const SyncRun& run, double share) {
  double all = 0, so_far = 0;
  for (const std::int64_t count : run.staleness) all += static_cast<double>(count);
  if (all == 0) return nullptr;
  for (std::size_t s = 0; s < run.staleness.size(); ++s) {
    so_far += static_cast<double>(run.staleness[s]);
    if (so_far >= share * all) return s;
  }
  return run.staleness.size() - 1;
}

OrderedJson staleness_json(const SyncRun& run) {
  return {{"mean", six_digits(run.mean_staleness())},
          {"median", staleness_quantile(run, 0.5)},
          {"p95", staleness_quantile(run, 0.95)},
          {"most",
           run.staleness.empty() ? OrderedJson(nullptr) : OrderedJson(run.staleness.size() - 1)},
          {"counts", run.staleness}};
}

// "12 %", or "3 to 40 %" if the workers differ.
std::string waiting_text(const SyncRun& run) {
  const auto [least, most] = std::ranges::minmax_element(run.workers, {}, &WorkerRun::waiting_us);
  const std::string low = percent_of(least->waiting_us, run.time_us, 0);
  const std::string high = percent_of(most->waiting_us, run.time_us, 0);
  return low == high ? low : low.substr(0, low.find(' ')) + " to " + high;
}

double time_per_commit_us(const SyncRun& run) {
  return run.time_us / static_cast<double>(run.commits());
}
double updates_per_s(const SyncRun& run) {
  return static_cast<double>(run.commits()) / (run.time_us / 1e6);
}

const ResultFields<SchemeSettings> kSettingsFields = {
    {"scheme", scheme_of_settings, "<scheme", scheme_title},
    {"settings", settings_json},
};

const ResultFields<SyncRun> kRunFields = {
    PERFMODEL_FIELDS(SyncRun, time_us, steps, commits),
    {"time_per_commit_us", time_per_commit_us},
    {"updates_per_s", updates_per_s, "updates/s", four_digits},
    {"steps_per_s", &SyncRun::steps_per_s, "steps/s", four_digits},
    {"steps_per_commit", &SyncRun::mean_tau},
    {"waiting_share", &SyncRun::waiting_share, "waiting", waiting_text},
    {"step_mean_us", &SyncRun::step_mean_us, "step", duration_text},
    {"step_median_us", &SyncRun::step_median_us},
    {"step_p95_us", &SyncRun::step_p95_us, "95 %", duration_text},
    {"staleness", staleness_json, "staleness",
     [](const SyncRun& run) { return three_digits(run.mean_staleness()); }},
};

const ResultFields<TimeToTarget> kTargetFields = {
    {"steps_to_target", &TimeToTarget::steps, Digits::kThreeDecimals},
    {"time_to_target_us", &TimeToTarget::time_us, "to target", duration_text},
};

const ResultFields<Worker> kGivenFields = {
    {"name", &Worker::name, "  worker", [](const Worker& worker) { return "  " + worker.name; }},
    {"step_us", &Worker::step_us, "step", duration_text},
    {"commit_own_us", &Worker::commit_us},
};

const ResultFields<LossModel> kLossFields = {
    PERFMODEL_FIELDS(LossModel, steps_to_target, tau_cost, staleness_cost, first_loss, target_loss,
                     limit_loss, source),
};

template <class Value>
auto figure_of(Value WorkerRun::*figure) {
  return [figure](const Row& row) { return row.run.*figure; };
}
auto share_of(double WorkerRun::*us) {
  return [us](const Row& row) { return percent_of(row.run.*us, row.time_us); };
}

template <class Value>
auto figures_of_workers(Value WorkerRun::*figure) {
  return [figure](const Case& one) {
    OrderedJson list = OrderedJson::array();
    for (const WorkerRun& worker : one.run.workers) list.push_back(exact(worker.*figure));
    return list;
  };
}

std::string waiting_of_all(const Case& one) {
  double waiting = 0;
  for (const WorkerRun& worker : one.run.workers) waiting += worker.waiting_us;
  return six_digits_text(waiting);
}

// A measured job's times are in seconds.
SchemeSettings in_microseconds(const ComparedRun& run) {
  SchemeSettings settings = run.settings;
  settings.period_us *= 1e6;
  return settings;
}

double step_error(const ComparedRun& run) {
  return run.predicted_s_per_step / run.measured_s_per_step - 1;
}
std::optional<double> blocked_error(const ComparedRun& run) {
  if (!(run.measured_blocked_share > 0)) return std::nullopt;
  return run.predicted_blocked_share / run.measured_blocked_share - 1;
}
std::string error_text(const ComparedRun& run, std::optional<double> error) {
  return run.fitted ? "fitted" : error ? signed_percent(*error) : "-";
}

OrderedJson reports_json(const SyncJob& job, const std::vector<SchemeReport>& reports) {
  OrderedJson list = OrderedJson::array();
  for (const SchemeReport& report : reports) {
    OrderedJson json = json_object(report, kSchemeFields);
    json["workers"] = json_list(worker_rows(job, report.run), kWorkerFields);
    if (!report.run.taus.empty()) json["taus"] = report.run.taus;
    list.push_back(std::move(json));
  }
  return list;
}

OrderedJson sweep_json(const std::vector<SweepPoint>& sweep) {
  static const auto kSweepFields = named_fields(
      kSchemeFields,
      {"scheme", "settings", "steps_per_s", "updates_per_s", "waiting_share", "time_to_target_us"});
  OrderedJson list = OrderedJson::array();
  for (const SweepPoint& point : sweep) {
    OrderedJson json = {{"slowdown", six_digits(point.slowdown)}};
    json["schemes"] = json_list(point.schemes, kSweepFields);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

const ResultFields<Row> kWorkerFields = joined_fields<Row>(
    {part_fields<Row>(&Row::worker, kGivenFields),
     {{"steps", figure_of(&WorkerRun::steps), "steps"},
      {"commits", figure_of(&WorkerRun::commits), "commits"},
      {"compute_us", figure_of(&WorkerRun::compute_us), "compute",
       share_of(&WorkerRun::compute_us)},
      {"commit_us", figure_of(&WorkerRun::commit_us), "commit", share_of(&WorkerRun::commit_us)},
      {"waiting_us", figure_of(&WorkerRun::waiting_us), "waiting",
       share_of(&WorkerRun::waiting_us)},
      {"waiting_share", [](const Row& row) { return row.run.waiting_us / row.time_us; }},
      {"idle_share", [](const Row& row) { return 1 - row.run.compute_us / row.time_us; }}}});

const ResultFields<SchemeReport> kSchemeFields = joined_fields<SchemeReport>(
    {part_fields<SchemeReport>(&SchemeReport::settings, kSettingsFields),
     part_fields<SchemeReport>(&SchemeReport::run, kRunFields),
     part_fields<SchemeReport>(&SchemeReport::reached, kTargetFields)});

const ResultFields<Case> kAnsweredCaseFields = joined_fields<Case>(
    {{{"id", [](const Case& one) { return one.asked.id; }, "case"}},
     part_fields<Case>([](const Case& one) { return one.asked.settings; },
                       named_fields(kSettingsFields, {"scheme"})),
     {{"total_time", [](const Case& one) { return exact(one.run.time_us); }, "time",
       [](const Case& one) { return six_digits_text(one.run.time_us); }},
      {"steps", figures_of_workers(&WorkerRun::steps), "steps",
       [](const Case& one) { return UsualText{}(one.run.steps()); }},
      {"commits", figures_of_workers(&WorkerRun::commits), "commits",
       [](const Case& one) { return UsualText{}(one.run.commits()); }},
      {"waiting", figures_of_workers(&WorkerRun::waiting_us), "waiting", waiting_of_all},
      {"total_steps", [](const Case& one) { return one.run.steps(); }}}});

const ResultFields<ComparedRun> kComparedRunFields = joined_fields<ComparedRun>(
    {{{"id", [](const ComparedRun& run) { return run.measured.id; }, "run"}},
     part_fields<ComparedRun>(in_microseconds, kSettingsFields),
     {{"fitted", &ComparedRun::fitted},
      {"assumed", [](const ComparedRun& run) { return run.measured.assumed; }},
      {"seconds_per_step", &ComparedRun::predicted_s_per_step, "s per step", four_digits},
      {"measured_seconds_per_step", &ComparedRun::measured_s_per_step, "measured", four_digits},
      {"seconds_per_step_error", step_error, "error",
       [](const ComparedRun& run) { return error_text(run, step_error(run)); }},
      {"blocked_share", &ComparedRun::predicted_blocked_share, "blocked", one_decimal_percent},
      {"measured_blocked_share", &ComparedRun::measured_blocked_share, "measured",
       one_decimal_percent},
      {"blocked_share_error", blocked_error, "error",
       [](const ComparedRun& run) { return error_text(run, blocked_error(run)); }}}});

std::vector<WorkerRow> worker_rows(const SyncJob& job, const SyncRun& run) {
  std::vector<WorkerRow> rows;
  for (std::size_t i = 0; i < job.workers.size(); ++i) {
    rows.push_back({job.workers[i], run.workers[i], run.time_us});
  }
  return rows;
}

std::string duration_text(double us) {
  if (!std::isfinite(us)) return "never";
  if (us < 1e3) return fmt::format("{:.3g} us", us);
  if (us < 1e6) return fmt::format("{:.4g} ms", us / 1e3);
  if (us < 6e8) return fmt::format("{:.4g} s", us / 1e6);
  return us < 3.6e10 ? fmt::format("{:.4g} min", us / 6e7) : fmt::format("{:.4g} h", us / 3.6e9);
}

std::string scheme_title(const SchemeSettings& settings) {
  const std::string_view name = scheme_name(settings.scheme);
  switch (settings.scheme) {
    case Scheme::kBsp:
    case Scheme::kAsp: break;
    case Scheme::kSsp:
      return settings.staleness ? fmt::format("{}, s = {}", name, *settings.staleness)
                                : fmt::format("{}, no bound", name);
    case Scheme::kLocalSgd: return fmt::format("{}, tau = {}", name, settings.tau);
    case Scheme::kAdacomm: return fmt::format("{}, tau from {}", name, settings.tau);
    case Scheme::kAdsp: {
      const auto& rates = settings.commits_per_period;
      const bool same = std::ranges::all_of(rates, [&](double r) { return r == rates.front(); });
      return same ? fmt::format("{}, {:.6g} per {}", name, rates.front(),
                                duration_text(settings.period_us))
                  : fmt::format("{}, rates per {}", name, duration_text(settings.period_us));
    }
  }
  return std::string(name);
}

OrderedJson sync_json(const SyncReport& report) {
  const SyncJob& job = report.job;
  OrderedJson json;
  json["exchange"] = exchange_name(job.exchange);
  if (job.exchange == Exchange::kServers) {
    json["servers"] = {{"count", job.servers.count}, {"commit_us", rounded(job.servers.commit_us)}};
  }
  json["seed"] = job.seed;
  json["loss_model"] = json_object(report.loss, kLossFields);
  json["schemes"] = reports_json(job, report.schemes);
  json["sweep"] = sweep_json(report.sweep);
  json["warnings"] = report.notes;
  return json;
}

OrderedJson sync_cases_json(const std::vector<AnsweredCase>& cases,
                            const std::vector<std::string>& warnings) {
  return {{"cases", json_list(cases, kAnsweredCaseFields)}, {"warnings", warnings}};
}

OrderedJson measured_sync_json(const ServerConstants& constants,
                               const std::vector<ComparedRun>& runs,
                               const std::vector<std::string>& warnings) {
  const SyncJob& job = constants.job;
  OrderedJson steps = OrderedJson::array();
  for (const Worker& worker : job.workers) steps.push_back(six_digits(worker.step_us));
  return {{"constants",
           {{"step_s", std::move(steps)},
            {"commit_own_s", six_digits(job.workers.front().commit_us)},
            {"commit_server_s", six_digits(job.servers.commit_us)},
            {"round_s", six_digits(constants.round_s)}}},
          {"cases", json_list(runs, kComparedRunFields)},
          {"warnings", warnings}};
}

}  // namespace perfmodel::sync
