#include <cmath>

#include "sync/sync_workers.hpp"
#include "sync_report.hpp"

namespace perfmodel::cli {
namespace {

using sync::Scheme;
using sync::SyncRun;
using sync::WorkerRun;

// Sums of decimal numbers without the noise of their last digits.
Json exact(double value) {
  const double rounded_value = std::round(value * 1e9) / 1e9;
  return rounded_value == 0 ? 0.0 : rounded_value;
}

template <class Member>
Json of_workers(const SyncRun& run, Member member) {
  Json list = Json::array();
  for (const WorkerRun& worker : run.workers) list.push_back(member(worker));
  return list;
}

Json settings_json(const sync::SchemeSettings& settings) {
  Json json = Json::object();
  switch (settings.scheme) {
    case Scheme::kBsp:
    case Scheme::kAsp:
      break;
    case Scheme::kSsp:
      json["staleness"] = settings.staleness ? Json(*settings.staleness) : Json(nullptr);
      break;
    case Scheme::kAdacomm:
      json["period_us"] = rounded(settings.period_us);
      [[fallthrough]];
    case Scheme::kLocalSgd:
      json["tau"] = settings.tau;
      break;
    case Scheme::kAdsp:
      json["period_us"] = rounded(settings.period_us);
      json["commits_per_period"] = settings.commits_per_period;
      break;
  }
  return json;
}

// The first s at which `share` of all commits have at most s.
Json staleness_quantile(const SyncRun& run, double share) {
  double all = 0, so_far = 0;
  for (const std::int64_t count : run.staleness) all += static_cast<double>(count);
  if (all == 0) return nullptr;
  for (std::size_t s = 0; s < run.staleness.size(); ++s) {
    so_far += static_cast<double>(run.staleness[s]);
    if (so_far >= share * all) return s;
  }
  return run.staleness.size() - 1;
}

Json staleness_json(const SyncRun& run) {
  return {{"mean", six_digits(run.mean_staleness())},
          {"median", staleness_quantile(run, 0.5)},
          {"p95", staleness_quantile(run, 0.95)},
          {"most", run.staleness.empty() ? Json(nullptr) : Json(run.staleness.size() - 1)},
          {"counts", run.staleness}};
}

Json worker_json(const sync::Worker& worker, const WorkerRun& ran, double time_us) {
  return {{"name", worker.name},
          {"step_us", rounded(worker.step_us)},
          {"commit_own_us", rounded(worker.commit_us)},
          {"steps", ran.steps},
          {"commits", ran.commits},
          {"compute_us", rounded(ran.compute_us)},
          {"commit_us", rounded(ran.commit_us)},
          {"waiting_us", rounded(ran.waiting_us)},
          {"waiting_share", six_digits(ran.waiting_us / time_us)},
          {"idle_share", six_digits(1 - ran.compute_us / time_us)}};
}

Json scheme_json(const sync::SyncJob& job, const SyncSchemeReport& report) {
  const SyncRun& run = report.run;
  const double seconds = run.time_us / 1e6;
  const auto commits = static_cast<double>(run.commits());
  Json json = {{"scheme", scheme_name(report.settings.scheme)},
               {"settings", settings_json(report.settings)},
               {"time_us", rounded(run.time_us)},
               {"steps", run.steps()},
               {"commits", run.commits()},
               {"time_per_commit_us", rounded(run.time_us / commits)},
               {"updates_per_s", six_digits(commits / seconds)},
               {"steps_per_s", six_digits(static_cast<double>(run.steps()) / seconds)},
               {"steps_per_commit", six_digits(run.mean_tau())},
               {"waiting_share", six_digits(run.waiting_share())},
               {"step_mean_us", rounded(run.step_mean_us)},
               {"step_median_us", rounded(run.step_median_us)},
               {"step_p95_us", rounded(run.step_p95_us)},
               {"staleness", staleness_json(run)},
               {"steps_to_target", rounded(report.reached.steps)},
               {"time_to_target_us", rounded(report.reached.time_us)},
               {"workers", Json::array()}};
  if (!run.taus.empty()) json["taus"] = run.taus;
  for (std::size_t i = 0; i < job.workers.size(); ++i) {
    json["workers"].push_back(worker_json(job.workers[i], run.workers[i], run.time_us));
  }
  return json;
}

Json loss_json(const sync::LossModel& loss) {
  return {{"steps_to_target", six_digits(loss.steps_to_target)},
          {"tau_cost", six_digits(loss.tau_cost)},
          {"staleness_cost", six_digits(loss.staleness_cost)},
          {"first_loss", six_digits(loss.first_loss)},
          {"target_loss", six_digits(loss.target_loss)},
          {"limit_loss", six_digits(loss.limit_loss)},
          {"source", loss.source}};
}

Json sweep_point_json(const SyncSweepPoint& point) {
  Json json = {{"slowdown", six_digits(point.slowdown)}, {"schemes", Json::array()}};
  for (const SyncSchemeReport& report : point.schemes) {
    const double seconds = report.run.time_us / 1e6;
    json["schemes"].push_back(
        {{"scheme", scheme_name(report.settings.scheme)},
         {"settings", settings_json(report.settings)},
         {"steps_per_s", six_digits(static_cast<double>(report.run.steps()) / seconds)},
         {"updates_per_s", six_digits(static_cast<double>(report.run.commits()) / seconds)},
         {"waiting_share", six_digits(report.run.waiting_share())},
         {"time_to_target_us", rounded(report.reached.time_us)}});
  }
  return json;
}

}  // namespace

Json sync_json(const SyncReport& report) {
  Json json = document(schemas::kSync);
  json["exchange"] = sync::exchange_name(report.job.exchange);
  if (report.job.exchange == sync::Exchange::kServers) {
    json["servers"] = {{"count", report.job.servers.count},
                       {"commit_us", rounded(report.job.servers.commit_us)}};
  }
  json["seed"] = report.job.seed;
  json["loss_model"] = loss_json(report.loss);
  json["schemes"] = Json::array();
  for (const SyncSchemeReport& scheme : report.schemes) {
    json["schemes"].push_back(scheme_json(report.job, scheme));
  }
  json["sweep"] = Json::array();
  for (const SyncSweepPoint& point : report.sweep) json["sweep"].push_back(sweep_point_json(point));
  json["warnings"] = report.notes;
  return json;
}

Json sync_cases_json(const std::vector<AnsweredCase>& cases,
                     const std::vector<std::string>& warnings) {
  Json json = document(schemas::kSync);
  json["cases"] = Json::array();
  for (const AnsweredCase& one : cases) {
    const SyncRun& run = one.run;
    json["cases"].push_back(
        {{"id", one.asked.id},
         {"scheme", scheme_name(one.asked.settings.scheme)},
         {"total_time", exact(run.time_us)},
         {"steps", of_workers(run, [](const WorkerRun& w) { return Json(w.steps); })},
         {"commits", of_workers(run, [](const WorkerRun& w) { return Json(w.commits); })},
         {"waiting", of_workers(run, [](const WorkerRun& w) { return exact(w.waiting_us); })},
         {"total_steps", run.steps()}});
  }
  json["warnings"] = warnings;
  return json;
}

Json measured_sync_json(const sync::ServerConstants& constants,
                        const std::vector<sync::ComparedRun>& runs,
                        const std::vector<std::string>& warnings) {
  Json json = document(schemas::kSync);
  Json steps = Json::array();
  for (const sync::Worker& worker : constants.job.workers) {
    steps.push_back(six_digits(worker.step_us));
  }
  json["constants"] = {{"step_s", std::move(steps)},
                       {"commit_own_s", six_digits(constants.job.workers.front().commit_us)},
                       {"commit_server_s", six_digits(constants.job.servers.commit_us)},
                       {"round_s", six_digits(constants.round_s)}};
  json["cases"] = Json::array();
  for (const sync::ComparedRun& run : runs) {
    sync::SchemeSettings settings = run.settings;
    settings.period_us *= 1e6;  // the job's times are in seconds
    json["cases"].push_back(
        {{"id", run.measured.id},
         {"scheme", scheme_name(settings.scheme)},
         {"settings", settings_json(settings)},
         {"fitted", run.fitted},
         {"assumed", run.measured.assumed},
         {"seconds_per_step", six_digits(run.predicted_s_per_step)},
         {"measured_seconds_per_step", six_digits(run.measured_s_per_step)},
         {"seconds_per_step_error",
          six_digits(run.predicted_s_per_step / run.measured_s_per_step - 1)},
         {"blocked_share", six_digits(run.predicted_blocked_share)},
         {"measured_blocked_share", six_digits(run.measured_blocked_share)},
         {"blocked_share_error",
          run.measured_blocked_share > 0
              ? six_digits(run.predicted_blocked_share / run.measured_blocked_share - 1)
              : Json(nullptr)}});
  }
  json["warnings"] = warnings;
  return json;
}

}  // namespace perfmodel::cli
