#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/plain_text.hpp"
#include "sync/sync_workers.hpp"
#include "sync_report.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using sync::Scheme;
using sync::SyncRun;
using sync::WorkerRun;

std::string duration_text(double us) {
  if (!std::isfinite(us)) return "never";
  if (us < 1e3) return fmt::format("{:.3g} us", us);
  if (us < 1e6) return fmt::format("{:.4g} ms", us / 1e3);
  if (us < 6e8) return fmt::format("{:.4g} s", us / 1e6);
  return us < 3.6e10 ? fmt::format("{:.4g} min", us / 6e7) : fmt::format("{:.4g} h", us / 3.6e9);
}

std::string share_range(const SyncRun& run) {
  const auto [least, most] = std::ranges::minmax_element(run.workers, {}, &WorkerRun::waiting_us);
  const std::string low = percent_of(least->waiting_us, run.time_us, 0);
  const std::string high = percent_of(most->waiting_us, run.time_us, 0);
  return low == high ? low : low.substr(0, low.find(' ')) + " to " + high;
}

std::string workers_of(const SyncReport& report, const SyncSchemeReport& scheme, bool bold) {
  TextTable table({"  worker", "step", "steps", "commits", "compute", "commit", "waiting"});
  for (std::size_t i = 0; i < report.job.workers.size(); ++i) {
    const sync::Worker& worker = report.job.workers[i];
    const WorkerRun& ran = scheme.run.workers[i];
    const auto share = [&](double us) { return percent_of(us, scheme.run.time_us); };
    table.row({"  " + worker.name, duration_text(worker.step_us), grouped(ran.steps),
               grouped(ran.commits), share(ran.compute_us), share(ran.commit_us),
               share(ran.waiting_us)});
  }
  return fmt::format("\n{}\n{}", scheme_title(scheme.settings), table.text(bold));
}

std::string sweep_of(const SyncReport& report, bool bold) {
  std::vector<std::string> headers = {"slowest worker"};
  for (const SyncSchemeReport& scheme : report.sweep.front().schemes) {
    headers.emplace_back(scheme_name(scheme.settings.scheme));
  }
  TextTable table(headers);
  for (const SyncSweepPoint& point : report.sweep) {
    std::vector<std::string> cells = {fmt::format("{:.3g}x its step", point.slowdown)};
    for (const SyncSchemeReport& scheme : point.schemes) {
      cells.push_back(duration_text(scheme.reached.time_us));
    }
    table.row(std::move(cells));
  }
  return "\nTime to the target\n" + table.text(bold);
}

}  // namespace

std::string scheme_title(const sync::SchemeSettings& settings) {
  const std::string_view name = scheme_name(settings.scheme);
  switch (settings.scheme) {
    case Scheme::kBsp:
    case Scheme::kAsp:
      break;
    case Scheme::kSsp:
      return settings.staleness ? fmt::format("{}, s = {}", name, *settings.staleness)
                                : fmt::format("{}, no bound", name);
    case Scheme::kLocalSgd:
      return fmt::format("{}, tau = {}", name, settings.tau);
    case Scheme::kAdacomm:
      return fmt::format("{}, tau from {}", name, settings.tau);
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

std::string sync_text(const SyncReport& report, bool full, bool bold) {
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
  TextTable table(
      {"scheme", "steps/s", "updates/s", "step", "95 %", "waiting", "staleness", "to target"});
  for (const SyncSchemeReport& scheme : report.schemes) {
    const SyncRun& run = scheme.run;
    const double seconds = run.time_us / 1e6;
    const auto commits = static_cast<double>(run.commits());
    table.row({scheme_title(scheme.settings),
               fmt::format("{:.4g}", static_cast<double>(run.steps()) / seconds),
               fmt::format("{:.4g}", commits / seconds), duration_text(run.step_mean_us),
               duration_text(run.step_p95_us), share_range(run),
               fmt::format("{:.3g}", run.mean_staleness()), duration_text(scheme.reached.time_us)});
  }
  std::string text = list.text() + "\n" + table.text(bold);
  if (full) {
    for (const SyncSchemeReport& scheme : report.schemes) text += workers_of(report, scheme, bold);
  }
  if (!report.sweep.empty()) text += sweep_of(report, bold);
  return text;
}

std::string sync_cases_text(const std::vector<AnsweredCase>& cases, bool bold) {
  TextTable table({"case", "<scheme", "time", "steps", "commits", "waiting"});
  for (const AnsweredCase& one : cases) {
    double waiting = 0;
    for (const WorkerRun& worker : one.run.workers) waiting += worker.waiting_us;
    table.row({one.asked.id, scheme_title(one.asked.settings),
               fmt::format("{:.6g}", one.run.time_us), grouped(one.run.steps()),
               grouped(one.run.commits()), fmt::format("{:.6g}", waiting)});
  }
  return table.text(bold) + "\nsteps, commits and waiting of all workers together (--json: each)\n";
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
  TextTable table(
      {"run", "<scheme", "s per step", "measured", "error", "blocked", "measured", "error"});
  for (const sync::ComparedRun& run : runs) {
    sync::SchemeSettings settings = run.settings;
    settings.period_us *= 1e6;  // the job's times are in seconds
    table.row({run.measured.id, scheme_title(settings),
               fmt::format("{:.4g}", run.predicted_s_per_step),
               fmt::format("{:.4g}", run.measured_s_per_step),
               run.fitted ? "fitted"
                          : signed_percent(run.predicted_s_per_step / run.measured_s_per_step - 1),
               percent(run.predicted_blocked_share), percent(run.measured_blocked_share),
               run.fitted ? "fitted"
               : run.measured_blocked_share > 0
                   ? signed_percent(run.predicted_blocked_share / run.measured_blocked_share - 1)
                   : "-"});
  }
  return list.text() + "\n" + table.text(bold);
}

}  // namespace perfmodel::cli
