// Synchronisation schemes: timelines that can be worked out by hand, the public exact cases, and a
// measured job.

#include "perfmodel/sync/run_sync.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sync/measured_sync.hpp"
#include "sync/sync_cases.hpp"
#include "sync/sync_workers.hpp"

namespace perfmodel::sync {
namespace sync_test {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Steps = std::vector<std::int64_t>;

SyncJob job_of(const std::vector<double>& steps, const std::vector<double>& commits) {
  SyncJob job;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    job.workers.push_back(
        {.name = std::to_string(i), .step_us = steps[i], .commit_us = commits[i]});
  }
  return job;
}

// Four workers of which one runs at half speed: steps of 100 us (200), commits of 10 us.
SyncJob half_speed() { return job_of({100, 100, 100, 200}, {10, 10, 10, 10}); }

SyncRun run(const SyncJob& job, const SchemeSettings& settings, const SyncTarget& target) {
  auto made = run_sync(job, settings, target);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return SyncRun{.workers = std::vector<WorkerRun>(job.workers.size())};
  }
  return std::move(*made);
}

Steps steps_of(const SyncRun& run) {
  Steps steps;
  for (const WorkerRun& worker : run.workers) steps.push_back(worker.steps);
  return steps;
}

std::vector<double> waiting_of(const SyncRun& run) {
  std::vector<double> waiting;
  for (const WorkerRun& worker : run.workers) waiting.push_back(worker.waiting_us);
  return waiting;
}

// --- one worker at half speed, by hand ---------------------------------------------------------

TEST(Sync, DataParallelStepIsTheSlowestStepAndTheAllReduce) {
  SyncJob job = half_speed();
  job.exchange = Exchange::kAllReduce;
  job.workers[1].commit_us = 25;  // a slow link holds the collective of all
  const SyncRun ran = run(job, {.scheme = Scheme::kBsp}, {.rounds = 7});
  EXPECT_DOUBLE_EQ(ran.step_mean_us, 200 + 25);
  EXPECT_DOUBLE_EQ(ran.time_us, 7 * 225);
  EXPECT_THAT(waiting_of(ran), ElementsAre(700, 700, 700, 0));
}

TEST(Sync, RoundsOfBspLastAsLongAsTheSlowestStepAndCommit) {
  const SyncRun ran = run(half_speed(), {.scheme = Scheme::kBsp}, {.rounds = 7});
  EXPECT_DOUBLE_EQ(ran.time_us, 7 * 210);
  EXPECT_THAT(waiting_of(ran), ElementsAre(700, 700, 700, 0));
}

TEST(Sync, StaleSynchronousByHand) {
  const auto at = [](std::optional<std::int64_t> staleness) {
    return run(half_speed(), {.scheme = Scheme::kSsp, .staleness = staleness},
               {.horizon_us = 2100});
  };
  // 0 and 1: lockstep, 2100 / 210 steps for all.
  for (const std::int64_t lockstep : {0, 1}) {
    EXPECT_THAT(steps_of(at(lockstep)), ElementsAre(10, 10, 10, 10));
    EXPECT_THAT(waiting_of(at(lockstep)), ElementsAre(1000, 1000, 1000, 0));
  }
  // 3: when the slow worker ends step 9 at 1890, the others have 11 and may begin their 12th, which
  // ends at 2000. They have worked 12 x 110 of 2100.
  EXPECT_THAT(steps_of(at(3)), ElementsAre(12, 12, 12, 10));
  EXPECT_THAT(waiting_of(at(3)),
              ElementsAre(DoubleNear(780, 1e-9), DoubleNear(780, 1e-9), DoubleNear(780, 1e-9), 0));
  // No bound: 2100 / 110 = 19.1 steps, no worker waits.
  EXPECT_THAT(steps_of(at(std::nullopt)), ElementsAre(19, 19, 19, 10));
  EXPECT_THAT(waiting_of(at(std::nullopt)), ElementsAre(0, 0, 0, 0));
}

TEST(Sync, LocalStepsByHand) {
  // max(5 x 200 + 10) per round of 5 steps; the others wait for 500.
  const SyncRun ran = run(half_speed(), {.scheme = Scheme::kLocalSgd, .tau = 5}, {.rounds = 4});
  EXPECT_DOUBLE_EQ(ran.time_us, 4 * 1010);
  EXPECT_DOUBLE_EQ(ran.step_mean_us, 202);
  EXPECT_THAT(waiting_of(ran), ElementsAre(2000, 2000, 2000, 0));
}

TEST(Sync, AdspCommitsAtItsRateAndWaitsForNobody) {
  // Every 500 - 10 us at an end of a step: 5 steps of 100, or 3 of 200, then 10 us.
  const SyncRun ran =
      run(half_speed(), {.scheme = Scheme::kAdsp, .period_us = 1000, .commits_per_period = {2}},
          {.horizon_us = 5100});
  EXPECT_THAT(steps_of(ran), ElementsAre(50, 50, 50, 25));  // 10 x 510; 8 x 610 and 220 left
  EXPECT_EQ(ran.workers[0].commits, 10);
  EXPECT_EQ(ran.workers[3].commits, 8);
  EXPECT_THAT(waiting_of(ran), ElementsAre(0, 0, 0, 0));
}

TEST(Sync, AdacommHalvesWhatTheLossDoesNotLower) {
  // One worker, 10 steps of 1 s per round, a period of 20 s. A loss that hardly falls: ceil(tau0
  // sqrt(1)) is not below tau, so that tau is halved every second or so round.
  const LossModel flat{.steps_to_target = 1e12, .tau_cost = 0};
  const auto ran =
      run_sync(job_of({1}, {0}), {.scheme = Scheme::kAdacomm, .tau = 10, .period_us = 20},
               {.rounds = 8}, flat);
  ASSERT_TRUE(ran);
  EXPECT_THAT(ran->taus, ElementsAre(10, 10, 5, 5, 5, 5, 3, 3));
  // A loss that falls: after 20 of 20 steps it is 0.25, and tau = ceil(10 x 0.5).
  const LossModel falling{.steps_to_target = 20, .tau_cost = 0, .target_loss = 0.25};
  const auto fell =
      run_sync(job_of({1}, {0}), {.scheme = Scheme::kAdacomm, .tau = 10, .period_us = 20},
               {.rounds = 3}, falling);
  ASSERT_TRUE(fell);
  EXPECT_THAT(fell->taus, ElementsAre(10, 10, 5));
}

// --- servers -----------------------------------------------------------------------------------

TEST(Sync, WorkersQueueForTheServer) {
  SyncJob job = job_of({10, 10}, {0, 0});
  job.exchange = Exchange::kServers;
  job.servers = {.count = 1, .commit_us = 4};
  // 10 to 14 and 14 to 18. The first waits at the barrier, the second in the queue.
  const SyncRun one = run(job, {.scheme = Scheme::kBsp}, {.rounds = 5});
  EXPECT_DOUBLE_EQ(one.time_us, 5 * 18);
  EXPECT_THAT(waiting_of(one), ElementsAre(20, 20));
  // Two servers with half of the model each: 10 to 12 and 12 to 14.
  job.servers.count = 2;
  EXPECT_DOUBLE_EQ(run(job, {.scheme = Scheme::kBsp}, {.rounds = 5}).time_us, 5 * 14);
}

TEST(Sync, AServerBoundsAsynchronousCommits) {
  SyncJob job = job_of(std::vector<double>(8, 10), std::vector<double>(8, 0));
  job.exchange = Exchange::kServers;
  job.servers = {.count = 1, .commit_us = 4};
  // Eight workers could commit every 14 us each; the server takes one per 4 us.
  const SyncRun ran = run(job, {.scheme = Scheme::kAsp}, {.commits = 10'000});
  EXPECT_NEAR(ran.time_us / 10'000, 4, 0.01);
  EXPECT_NEAR(ran.mean_staleness(), 7, 0.01);  // all others commit between two of one worker
}

// --- relations ---------------------------------------------------------------------------------

TEST(Sync, SchemesMeetAtTheirLimits) {
  const SyncJob job = job_of({0.94, 0.99, 2.67, 1.24}, {0.44, 0.21, 1.01, 0.41});
  const SyncTarget rounds{.rounds = 50}, horizon{.horizon_us = 200};
  const SyncRun bsp = run(job, {.scheme = Scheme::kBsp}, rounds);
  EXPECT_DOUBLE_EQ(run(job, {.scheme = Scheme::kLocalSgd, .tau = 1}, rounds).time_us, bsp.time_us);
  EXPECT_DOUBLE_EQ(run(job, {.scheme = Scheme::kSsp, .staleness = 1}, rounds).time_us, bsp.time_us);
  const SyncRun asp = run(job, {.scheme = Scheme::kAsp}, horizon);
  EXPECT_EQ(steps_of(run(job, {.scheme = Scheme::kSsp, .staleness = 1'000'000}, horizon)),
            steps_of(asp));
  const SyncRun often =
      run(job, {.scheme = Scheme::kAdsp, .period_us = 1, .commits_per_period = {1e6}}, horizon);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(often.workers[i].commits, asp.workers[i].commits);
}

TEST(Sync, TimeIsComputeCommitAndWaiting) {
  SyncJob job = job_of({0.94, 0.99, 2.67, 1.24}, {0.44, 0.21, 1.01, 0.41});
  job.workers[1].straggler = {.kind = Straggler::Kind::kLognormal, .spread = 0.3};
  for (const Exchange exchange : {Exchange::kDirect, Exchange::kServers}) {
    job.exchange = exchange;
    job.servers = {.count = 1, .commit_us = 0.2};
    for (std::size_t s = 0; s < scheme_names().size(); ++s) {
      const SyncRun ran = run(job,
                              {.scheme = static_cast<Scheme>(s),
                               .tau = 7,
                               .staleness = 2,
                               .period_us = 20,
                               .commits_per_period = {3}},
                              {.commits = 400});
      EXPECT_GE(ran.commits(), 400);
      for (const WorkerRun& worker : ran.workers) {
        EXPECT_NEAR(worker.compute_us + worker.commit_us + worker.waiting_us, ran.time_us,
                    // a commit that is being served at the end counts as waiting
                    1e-6 * ran.time_us)
            << scheme_names()[s];
      }
    }
  }
}

TEST(Sync, ASlowerWorkerNeverMakesTheJobFaster) {
  for (std::size_t s = 0; s < scheme_names().size(); ++s) {
    const SchemeSettings settings{.scheme = static_cast<Scheme>(s),
                                  .tau = 8,
                                  .staleness = 3,
                                  .period_us = 1000,
                                  .commits_per_period = {2}};
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const double slow : {100.0, 150.0, 200.0, 400.0, 800.0}) {
      const SyncRun ran =
          run(job_of({100, 100, slow}, {10, 10, 10}), settings, {.horizon_us = 100'000});
      EXPECT_LE(ran.steps(), before) << scheme_names()[s] << " " << slow;
      before = ran.steps();
    }
  }
}

// --- stragglers --------------------------------------------------------------------------------

TEST(Sync, StragglersHaveTheMeanAndThePercentileOfTheirDistribution) {
  SyncJob job = job_of({100, 100}, {0, 0});
  for (Worker& worker : job.workers) worker.straggler = *Straggler::parse("exponential:0.3");
  // The maximum of two exponential delays has mean 1.5 and distribution (1 - e^-x)^2.
  const SyncRun ran = run(job, {.scheme = Scheme::kBsp}, {.rounds = 40'000});
  EXPECT_NEAR(ran.step_mean_us, 100 * (1 + 0.3 * 1.5), 0.5);
  EXPECT_NEAR(ran.step_p95_us, 100 * (1 - 0.3 * std::log(1 - std::sqrt(0.95))), 2);
  job.seed = 1;
  EXPECT_NE(run(job, {.scheme = Scheme::kBsp}, {.rounds = 100}).time_us, 0);
  const double same = run(job, {.scheme = Scheme::kBsp}, {.rounds = 100}).time_us;
  EXPECT_EQ(run(job, {.scheme = Scheme::kBsp}, {.rounds = 100}).time_us, same);
  job.seed = 2;
  EXPECT_NE(run(job, {.scheme = Scheme::kBsp}, {.rounds = 100}).time_us, same);
}

TEST(Sync, MeansOfAllStragglers) {
  for (const char* text :
       {"none", "lognormal:0.5", "uniform:0.4", "exponential:0.2", "pause:0.02:6"}) {
    SyncJob job = job_of({100}, {0});
    job.workers[0].straggler = *Straggler::parse(text);
    const double mean = 100 * job.workers[0].straggler.mean();
    EXPECT_NEAR(run(job, {.scheme = Scheme::kAsp}, {.rounds = 50'000}).step_mean_us, mean, 1.5)
        << text;
    // Sums of many steps are drawn as a whole.
    EXPECT_NEAR(run(job, {.scheme = Scheme::kLocalSgd, .tau = 5000}, {.rounds = 200}).step_mean_us,
                mean, 0.5)
        << text;
  }
}

TEST(Sync, StragglersThatNoDistributionHas) {
  for (const char* text : {"", "lognormal", "lognormal:-1", "uniform:1", "pause:0.1", "pause:2:3",
                           "pause:0.1:0.5", "gauss:1", "exponential:x", "exponential:nan"}) {
    EXPECT_FALSE(Straggler::parse(text)) << text;
  }
}

// --- what makes no sense -----------------------------------------------------------------------

TEST(Sync, ImpossibleJobsAreErrors) {
  const SyncJob good = half_speed();
  SyncJob job = good;
  const auto message = [&](const SchemeSettings& settings, const SyncTarget& target) {
    const auto made = run_sync(job, settings, target);
    return made ? std::string("no error") : made.error().message;
  };
  const SyncTarget rounds{.rounds = 1};
  EXPECT_THAT(message({}, {}), HasSubstr("expected rounds, commits or a horizon"));
  EXPECT_THAT(message({.scheme = Scheme::kLocalSgd, .tau = 0}, rounds), HasSubstr("a tau"));
  EXPECT_THAT(message({.scheme = Scheme::kSsp, .staleness = -1}, rounds), HasSubstr("staleness"));
  EXPECT_THAT(message({.scheme = Scheme::kAdsp, .commits_per_period = {1, 2}}, rounds),
              HasSubstr("all 4 workers"));
  EXPECT_THAT(message({.scheme = Scheme::kAdsp, .commits_per_period = {0}}, rounds),
              HasSubstr("above 0"));
  job.exchange = Exchange::kAllReduce;
  EXPECT_THAT(message({.scheme = Scheme::kAsp}, rounds), HasSubstr("all-reduce, found asp"));
  job = good;
  job.workers[2].step_us = 0;
  EXPECT_THAT(message({}, rounds), HasSubstr("a step above 0 of worker \"2\""));
  job.workers.clear();
  EXPECT_THAT(message({}, rounds), HasSubstr("at least one worker"));
  job = good;
  job.exchange = Exchange::kServers;
  job.servers.count = std::int64_t{1} << 40;
  EXPECT_THAT(message({}, rounds), HasSubstr("1 to 100000 servers, found 1099511627776"));
}

// --- public cases ------------------------------------------------------------------------------

std::filesystem::path public_file(const char* name) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  return folder ? std::filesystem::path(folder) / "distributed" / name : std::filesystem::path();
}

TEST(SyncCases, PublicTimelinesAreExact) {
  const auto file = public_file("exact_sync_schemes.json");
  if (file.empty()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto read = read_sync_cases(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_TRUE(read->warnings.empty());
  std::ifstream in(file);
  const auto document = nlohmann::json::parse(in);
  ASSERT_EQ(read->cases.size(), document["cases"].size());
  for (std::size_t i = 0; i < read->cases.size(); ++i) {
    const SyncCase& one = read->cases[i];
    const auto& expected = document["cases"][i]["expected"];
    const SyncRun ran = run(one.job, one.settings, one.target);
    SCOPED_TRACE(one.id);
    for (std::size_t w = 0; w < ran.workers.size(); ++w) {
      EXPECT_EQ(ran.workers[w].steps, expected["steps"][w]) << w;
      if (expected.contains("commits")) {
        EXPECT_EQ(ran.workers[w].commits, expected["commits"][w]) << w;
      }
      if (expected.contains("waiting")) {
        EXPECT_NEAR(ran.workers[w].waiting_us, expected["waiting"][w].get<double>(), 1e-6) << w;
      }
    }
    if (expected.contains("total_time")) {
      EXPECT_NEAR(ran.time_us, expected["total_time"].get<double>(), 1e-6);
    }
    if (expected.contains("total_steps")) {
      EXPECT_EQ(ran.steps(), expected["total_steps"]);
    }
  }
}

TEST(SyncCases, ConstantsOfBspPredictTheOtherMeasuredRun) {
  const auto file = public_file("ps_sync_measured.json");
  if (file.empty()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto read = read_sync_cases(file);
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->measured.size(), 2U);
  const auto constants = fit_servers(read->measured);
  ASSERT_TRUE(constants) << to_string(constants.error());
  const auto compared = compare_runs(read->measured, *constants, {});
  ASSERT_TRUE(compared) << to_string(compared.error());
  for (const ComparedRun& one : *compared) {
    const double limit = one.fitted ? 0.01 : 0.15;
    EXPECT_NEAR(one.predicted_s_per_step / one.measured_s_per_step, 1, limit) << one.measured.id;
    EXPECT_NEAR(one.predicted_blocked_share / one.measured_blocked_share, 1, limit)
        << one.measured.id;
  }
}

TEST(SyncCases, SixSchemesOfManyWorkersTakeASecondAtMost) {
#ifdef PERFMODEL_SANITIZED
  GTEST_SKIP() << "sanitizers";
#endif
  SyncJob job;
  for (int i = 0; i < 64; ++i) {
    job.workers.push_back({.name = std::to_string(i), .step_us = 1000.0 + 37 * i, .commit_us = 50});
  }
  const std::clock_t start = std::clock();  // only this process, however busy the machine is
  for (std::size_t s = 0; s < scheme_names().size(); ++s) {
    const SyncRun ran = run(job,
                            {.scheme = static_cast<Scheme>(s),
                             .tau = 10,
                             .staleness = 3,
                             .period_us = 60'000,
                             .commits_per_period = {4}},
                            {.commits = 64'000});
    EXPECT_GE(ran.commits(), 64'000);
  }
  EXPECT_LE(std::clock() - start, CLOCKS_PER_SEC);
}

// --- time to the target ------------------------------------------------------------------------

TEST(SyncTarget, CostsOfTauAndStalenessLengthenTheRun) {
  const LossModel loss{.steps_to_target = 1000, .tau_cost = 0.1, .staleness_cost = 0.5};
  const SyncJob job = job_of({10, 10}, {5, 5});
  const SchemeSettings local{.scheme = Scheme::kLocalSgd, .tau = 4};
  // Rounds of 4 x 10 + 5 us with 8 steps; 1000 (1 + 0.1 x 3) steps are needed.
  const auto reached = time_to_target(job, local, run(job, local, {.rounds = 10}), loss);
  ASSERT_TRUE(reached);
  EXPECT_DOUBLE_EQ(reached->steps, 1300);
  EXPECT_DOUBLE_EQ(reached->time_us, 1300 / 8.0 * 45);
  EXPECT_NEAR(loss.loss(0), 1, 1e-12);
  EXPECT_NEAR(loss.loss(1000), 0.1, 1e-12);
}

TEST(SyncTarget, AdspFindsTheRateThatEndsFirst) {
  const SyncJob job = job_of({1, 1, 3}, {0.5, 0.5, 0.5});
  const SchemeSettings start{.scheme = Scheme::kAdsp, .period_us = 60};
  const LossModel loss{};
  const auto found = tuned(job, start, loss);
  ASSERT_TRUE(found) << to_string(found.error());
  const auto time_at = [&](double rate) {
    SchemeSettings settings = start;
    settings.commits_per_period = {rate};
    return time_to_target(job, settings, run(job, settings, {.horizon_us = 300}), loss)->time_us;
  };
  const double best = found->commits_per_period.front();
  EXPECT_GT(best, 1);  // one commit per 60 steps costs more than it saves
  for (double rate = 1; rate <= 6; ++rate) EXPECT_LE(time_at(best), time_at(rate)) << rate;
  EXPECT_LT(time_at(best), time_at(60));
}

// --- workers as users describe them ------------------------------------------------------------

TEST(SyncWorkers, CommitsFollowFromBytesAndLinks) {
  SyncPlan plan{.groups = *parse_workers("a:2:1000,b:1:2000"), .model_bytes = 1e6};
  for (WorkerGroup& group : plan.groups) group.link_gb_per_s = 1;
  plan.groups[1].link_gb_per_s = 0.5;
  const auto commits = [&] {
    const auto made = plan_sync_job(plan, nullptr);
    EXPECT_TRUE(made);
    std::vector<double> us;
    for (const Worker& worker : made->job.workers) us.push_back(worker.commit_us);
    return us;
  };
  EXPECT_THAT(commits(), ElementsAre(2000, 2000, 4000));  // 2 x 1 MB at 1 and 0.5 GB/s
  plan.exchange = Exchange::kAllReduce;                   // 2 x 2/3 x 1 MB
  EXPECT_THAT(commits(), ElementsAre(DoubleNear(1333.333, 0.001), DoubleNear(1333.333, 0.001),
                                     DoubleNear(2666.667, 0.001)));
  plan.exchange = Exchange::kServers;  // the card of one server: 2 x 1 MB at 2 GB/s
  plan.server_nic_gb_per_s = 2;
  EXPECT_THAT(commits(), ElementsAre(1000, 1000, 3000));
  EXPECT_EQ(plan_sync_job(plan, nullptr)->job.servers.commit_us, 1000);
}

TEST(SyncWorkers, AWorkerWithoutASpeedIsAnError) {
  const auto made = plan_sync_job({.groups = *parse_workers("fast:1:100,slow:3")}, nullptr);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("a speed of worker \"slow\""));
  for (const char* text : {"", "a:0:1", "a:1:0", "a:1:1:-1", "a:1:1:1:1", ":1:1", "a:x", "a,,b"}) {
    EXPECT_FALSE(parse_workers(text)) << text;
  }
}

}  // namespace sync_test
}  // namespace perfmodel::sync
