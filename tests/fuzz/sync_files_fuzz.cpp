// JSON files of `sync`: cases, workers, models of the loss. Every reader gets every text; what one
// takes is run.
#include <algorithm>
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/sync/run_sync.hpp"
#include "sync/measured_sync.hpp"
#include "sync/sync_cases.hpp"
#include "sync/sync_workers.hpp"

using namespace perfmodel;
using namespace perfmodel::sync;

namespace {

constexpr std::size_t kMostWorkers = 32;
constexpr std::int64_t kMostCommits = 2000;  // a run takes as long as it has commits

void check_run(const SyncJob& job, const SchemeSettings& settings, SyncTarget target) {
  if (job.workers.size() > kMostWorkers) return;
  target.commits = std::min(target.commits.value_or(kMostCommits), kMostCommits);
  const auto run = run_sync(job, settings, target);
  if (!run) return fuzz::check_error(run.error());
  PERFMODEL_CHECK(run->workers.size() == job.workers.size());
  PERFMODEL_CHECK(!std::isnan(run->time_us) && run->time_us >= 0);
  for (const WorkerRun& worker : run->workers) {
    PERFMODEL_CHECK(worker.steps >= 0 && worker.commits >= 0);
    PERFMODEL_CHECK(worker.compute_us >= 0 && worker.waiting_us >= 0);
  }
}

void check_cases(const std::filesystem::path& file) {
  const auto read = read_sync_cases(file);
  if (!read) return fuzz::check_error(read.error());
  fuzz::check_lines(read->warnings);
  for (std::size_t i = 0; i < std::min<std::size_t>(read->cases.size(), 4); ++i) {
    // A step of 1e-300 us in a horizon of 1e300: commits are bounded, steps between them are not.
    const SyncCase& one = read->cases[i];
    const bool commits_each_step = one.settings.scheme == Scheme::kBsp ||
                                   one.settings.scheme == Scheme::kAsp ||
                                   one.settings.scheme == Scheme::kSsp;
    if (commits_each_step) check_run(one.job, one.settings, one.target);
  }
  if (read->measured.empty()) return;
  const auto constants = fit_servers(read->measured);
  if (!constants) return fuzz::check_error(constants.error());
}

void check_workers(const std::filesystem::path& file) {
  const auto plan = read_sync_plan(file);
  if (!plan) return fuzz::check_error(plan.error());
  std::int64_t workers = 0;
  for (const WorkerGroup& group : plan->groups) {
    PERFMODEL_CHECK(group.count > 0);
    workers += std::min<std::int64_t>(group.count, 1 << 20);
  }
  if (workers > static_cast<std::int64_t>(kMostWorkers)) return;
  const auto job = plan_sync_job(*plan, nullptr);
  if (!job) return fuzz::check_error(job.error());
  fuzz::check_lines(job->notes);
  for (const Scheme scheme : {Scheme::kBsp, Scheme::kAsp, Scheme::kSsp}) {
    check_run(job->job, {.scheme = scheme, .staleness = 3}, {});
  }
}

void check_loss(const std::filesystem::path& file) {
  const auto loss = read_loss_model(file);
  if (!loss) return fuzz::check_error(loss.error());
  PERFMODEL_CHECK(loss->factor(40, 3) >= 1);
  const double begin = loss->loss(0), end = loss->loss(loss->steps_to_target);
  PERFMODEL_CHECK(std::isfinite(begin) && std::isfinite(end) && end <= begin);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto groups = parse_workers(text); !groups) fuzz::check_error(groups.error());
  const auto& file = fuzz::file_with(text, ".json");
  check_cases(file);
  check_workers(file);
  check_loss(file);
  return 0;
}
