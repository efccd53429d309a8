#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sync/sync_results.hpp"
#include "sync/sync_workers.hpp"
#include "sync_report.hpp"
#include "terminal/field_table.hpp"

namespace perfmodel::cli {
namespace {

using sync::duration_text;
using sync::SchemeReport;

std::string sweep_text(const std::vector<sync::SweepPoint>& sweep, bool bold) {
  std::vector<std::string> headers = {"slowest worker"};
  for (const SchemeReport& scheme : sweep.front().schemes) {
    headers.emplace_back(scheme_name(scheme.settings.scheme));
  }
  TextTable table(headers);
  for (const sync::SweepPoint& point : sweep) {
    std::vector<std::string> cells = {fmt::format("{:.3g}x its step", point.slowdown)};
    for (const SchemeReport& scheme : point.schemes) {
      cells.push_back(duration_text(scheme.reached.time_us));
    }
    table.row(std::move(cells));
  }
  return "\nTime to the target\n" + table.text(bold);
}

}  // namespace

std::string sync_text(const sync::SyncReport& report, bool full, bool bold) {
  TextList list;
  for (const std::string& note : report.notes) list.row("note", note);
  list.row("workers", grouped(report.job.workers.size()));
  list.row("exchange",
           report.job.exchange == sync::Exchange::kServers
               ? fmt::format("{} ({}, {} per commit)", "servers",
                             counted(static_cast<std::size_t>(report.job.servers.count), "server"),
                             duration_text(report.job.servers.commit_us))
               : std::string(exchange_name(report.job.exchange)));
  list.row("loss model", report.loss.source);
  std::string text = list.text() + "\n" +
                     field_table(report.schemes, sync::kSchemeFields,
                                 {"scheme", "steps_per_s", "updates_per_s", "step_mean_us",
                                  "step_p95_us", "waiting_share", "staleness", "time_to_target_us"})
                         .text(bold);
  if (full) {
    for (const SchemeReport& scheme : report.schemes) {
      text += fmt::format("\n{}\n{}", scheme_title(scheme.settings),
                          field_table(worker_rows(report.job, scheme.run), sync::kWorkerFields,
                                      {"name", "step_us", "steps", "commits", "compute_us",
                                       "commit_us", "waiting_us"})
                              .text(bold));
    }
  }
  if (!report.sweep.empty()) text += sweep_text(report.sweep, bold);
  return text;
}

std::string sync_cases_text(const std::vector<sync::AnsweredCase>& cases, bool bold) {
  return field_table(cases, sync::kAnsweredCaseFields,
                     {"id", "scheme", "total_time", "steps", "commits", "waiting"})
             .text(bold) +
         "\nsteps, commits and waiting of all workers together (--json: each)\n";
}

std::string measured_sync_text(const sync::ServerConstants& constants,
                               const std::vector<sync::ComparedRun>& runs, bool bold) {
  std::vector<std::string> steps;
  for (const sync::Worker& worker : constants.job.workers) {
    steps.push_back(fmt::format("{:.4g}", worker.step_us));
  }
  TextList list;
  list.row("step, from BSP", fmt::format("{} s", fmt::join(steps, ", ")));
  list.row("commit, from BSP",
           fmt::format("{:.4g} s of the worker, {:.4g} s of the server that all share",
                       constants.job.workers.front().commit_us, constants.job.servers.commit_us));
  for (const sync::ComparedRun& run : runs) {
    for (const std::string& assumed : run.measured.assumed) {
      list.row("assumed", run.measured.id + ": " + assumed);
    }
  }
  return list.text() + "\n" +
         field_table(runs, sync::kComparedRunFields,
                     {"id", "scheme", "seconds_per_step", "measured_seconds_per_step",
                      "seconds_per_step_error", "blocked_share", "measured_blocked_share",
                      "blocked_share_error"})
             .text(bold);
}

}  // namespace perfmodel::cli
