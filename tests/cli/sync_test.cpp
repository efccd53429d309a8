// `perfpredict sync`: documents, and what is refused in one line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace sync_cli_test {

using ::testing::HasSubstr;

TEST(SyncCommand, AnswersCasesWithTheKeysOfTheirFile) {
  const std::string file = written("cases.json", R"({"what": "two cases", "cases": [
    {"id": "a", "scheme": "bsp", "step_time": [1, 2], "commit_time": [0.5, 0.25], "rounds": 4,
     "expected": {}},
    {"id": "b", "scheme": "adsp", "step_time": [1.0], "commit_time": [0.5], "check_period": 10,
     "commits_per_period": [2], "horizon": 11.5}]})");
  const Outcome outcome = run({"sync", file, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-sync");
  const Json& a = json["cases"][0];
  EXPECT_EQ(a["id"], "a");
  EXPECT_EQ(a["total_time"], 9);
  EXPECT_EQ(a["steps"], Json({4, 4}));
  EXPECT_EQ(a["waiting"], Json({3, 0}));
  const Json& b = json["cases"][1];  // commits from 5 to 5.5 and from 10.5 to 11
  EXPECT_EQ(b["steps"], Json({10}));
  EXPECT_EQ(b["commits"], Json({2}));
  EXPECT_EQ(b["total_steps"], 10);
}

TEST(SyncCommand, AKeyWithoutEffectIsSaid) {
  const std::string file = written("odd.json", R"({"cases": [{"id": "a", "scheme": "bsp",
    "step_time": [1], "commit_time": [0], "rounds": 4, "speed": 3}]})");
  const Outcome outcome = run({"sync", file, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("/cases/0/speed: this key has no effect"));
  EXPECT_EQ(Json::parse(outcome.out)["warnings"].size(), 1U);
}

TEST(SyncCommand, ComparesAllSchemesOfMixedWorkers) {
  const Outcome outcome = run({"sync", "--workers", "fast:3:1000:100,slow:1:2000:100", "--json",
                               "--target-updates", "400", "--slowest", "1,2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["schemes"].size(), 6U);
  for (const Json& scheme : json["schemes"]) {
    SCOPED_TRACE(scheme["scheme"].get<std::string>());
    EXPECT_GE(scheme["commits"], 400);
    EXPECT_GT(scheme["updates_per_s"], 0);
    EXPECT_EQ(scheme["workers"].size(), 4U);
    EXPECT_GT(scheme["time_to_target_us"], 0);
    for (const Json& worker : scheme["workers"]) {
      EXPECT_GE(worker["idle_share"], worker["waiting_share"]);
    }
  }
  EXPECT_NEAR(json["schemes"][0]["step_mean_us"].get<double>(), 2100, 1e-3);  // bsp
  EXPECT_EQ(json["sweep"].size(), 2U);
  EXPECT_EQ(json["sweep"][1]["schemes"].size(), 6U);
}

TEST(SyncCommand, RanksHaveGpusHostsAndLinksOfTheirOwn) {
  const fs::path graph = scratch() / "mlp.json";
  ASSERT_EQ(run({"build", "mlp", "-o", graph.string()}).status, 0);
  const auto steps = [&](const Words& more) {
    Words words = {"sync", "--graph", graph.string(),     "--scheme",
                   "bsp",  "--json",  "--target-updates", "20"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out)["schemes"][0]["workers"];
  };
  const Json mixed = steps(
      {"--gpu", "a100-sxm-40gb,v100-sxm2-32gb", "--host-scale", "1,2", "--link-gb-per-s", "10,1"});
  const Outcome alone = run({"predict", graph.string(), "--gpu", "a100-sxm-40gb", "--json"});
  EXPECT_NEAR(mixed[0]["step_us"].get<double>(), Json::parse(alone.out)["e2e_us"].get<double>(),
              0.01);
  EXPECT_GT(mixed[1]["step_us"], mixed[0]["step_us"]);
  EXPECT_NEAR(mixed[1]["commit_own_us"].get<double>() / mixed[0]["commit_own_us"].get<double>(), 10,
              0.01);
}

Words workers_in(const std::string& text) {
  return {"sync", "--workers", written("workers.json", text)};
}

std::string workers(const std::string& list, const std::string& more = "") {
  return R"({"schema": "perfmodel-sync-workers", "version": 1, )" + more + R"("workers": [)" +
         list + "]}";
}

TEST(SyncCommand, AFileOfWorkersIsTheSameAsTheirList) {
  const Json file =
      json_of(workers_in(workers(R"({"name": "a", "count": 2, "step_us": 10000, "commit_us": 400},
                 {"name": "b", "step_us": 20000, "commit_us": 500, "straggler": "uniform:0.1"})")));
  const Json list = json_of({"sync", "--workers", "a:2:10000:400,b:1:20000:500"});
  ASSERT_EQ(file["schemes"].size(), list["schemes"].size());
  const Json &one = file["schemes"][0]["workers"], &other = list["schemes"][0]["workers"];
  ASSERT_EQ(one.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    for (const char* key : {"name", "step_us", "commit_own_us"})
      EXPECT_EQ(one[i][key], other[i][key]);
  }
  // Drawn from +-10 %, and the slowest of three sets the pace.
  EXPECT_EQ(list["schemes"][0]["step_mean_us"], 20500);
  EXPECT_NEAR(file["schemes"][0]["step_mean_us"].get<double>(), 20500, 0.1 * 20000);
  EXPECT_NE(file["schemes"][0]["step_mean_us"], 20500);
}

// Two servers move half a model of 100 MB each, in and out, at 1.25 GB/s: 80 ms per commit, one
// after the other.
TEST(SyncCommand, ServersServeOneCommitAfterTheOther) {
  Words words = workers_in(workers(
      R"({"name": "a", "count": 2, "step_us": 10000, "link_gb_per_s": 12.5},
         {"name": "b", "step_us": 20000, "link_gb_per_s": 12.5})",
      R"("exchange": "servers", "servers": {"count": 2, "nic_gb_per_s": 1.25},
         "model_bytes": 1.0e8, )"));
  const std::string loss = written("loss.json", R"({"schema": "perfmodel-loss-model", "version": 1,
    "steps_to_target": 1000, "tau_cost": 0.01, "staleness_cost": 0.02, "first_loss": 2,
    "target_loss": 0.2, "limit_loss": 0.1, "source": "a made-up job"})");
  words.insert(words.end(), {"--scheme", "bsp", "--loss-model", loss});
  const Json json = json_of(words);
  const Json& bsp = json["schemes"][0];
  EXPECT_GE(bsp["step_mean_us"], 3 * 80'000);
  EXPECT_LE(bsp["step_mean_us"], 3 * 80'000 + 20'000 + 16'000);
  EXPECT_EQ(json["loss_model"]["source"], "a made-up job");
  EXPECT_NEAR(bsp["time_to_target_us"].get<double>(),
              1000 / bsp["updates_per_s"].get<double>() * 1e6, 1e3);
  words.push_back("--full");
  const std::string text = output_of(words);
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("servers (2 servers, 160 ms per commit)"));
}

TEST(SyncCommand, WrongFilesSayWhere) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_error(workers_in(text), 1, message);
  };
  const std::string good = R"({"name": "a", "step_us": 10})";
  refused(workers(""), "/workers: expected at least one worker");
  refused(workers(R"({"name": "a", "step_us": 10, "count": 0})"), "/workers/0/count: expected");
  refused(workers(R"({"name": "a", "step_us": 10, "count": 100001})"), "at most 100,000 workers");
  refused(workers(good + R"(, {"name": "b", "step_us": -1})"), "/workers/1/step_us: expected");
  refused(workers(R"({"name": "a", "step_us": 10, "commit_us": -1})"), "/workers/0/commit_us");
  refused(workers(R"({"name": "a", "step": 10})"), "/workers/0/step");
  refused(workers(R"({"name": "a", "step_us": 10, "straggler": "gauss:1"})"),
          "/workers/0/straggler: expected a distribution");
  refused(workers(good, R"("exchange": "gossip", )"), "/exchange: expected one of direct, servers");
  refused(workers(good, R"("servers": {"count": 0}, )"), "/servers/count");
  const std::string losses = written("losses.json", R"({"schema": "perfmodel-loss-model",
    "version": 1, "steps_to_target": 10, "tau_cost": 0, "staleness_cost": 0, "first_loss": 0.1})");
  expect_error({"sync", "--workers", "a:1:10", "--loss-model", losses}, 1,
               "first_loss above target_loss above limit_loss");
}

TEST(SyncCommand, DrawsTheSweep) {
  const fs::path plot = scratch() / "sync.svg";
  const Outcome outcome = run({"sync", "--workers", "fast:3:1000:100,slow:1:2000:100",
                               "--target-updates", "200", "--plot", plot.string()});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Time to the target"));
  const std::string svg = read(plot);
  EXPECT_THAT(svg, HasSubstr("<svg"));
  for (const char* scheme : {"bsp", "asp", "ssp", "local_sgd", "adacomm", "adsp"}) {
    EXPECT_THAT(svg, HasSubstr(scheme));
  }
}

TEST(SyncCommand, BadInputIsOneLine) {
  int files = 0;
  const auto case_of = [&](const std::string& text) {
    return written("bad" + std::to_string(files++) + ".json",
                   R"({"cases": [{"id": "a", )" + text + "}]}");
  };
  const std::vector<std::pair<Words, std::string>> bad = {
      {{"--workers", "a:3"}, "expected a speed of worker \"a\""},
      {{"--workers", "a:3:0"}, "times above 0"},
      {{"--workers", "a:1:5", "--scheme", "gossip"}, "expected a scheme (bsp, asp"},
      {{"--workers", "a:1:5", "--staleness", "x"}, "expected --staleness inf"},
      {{"--workers", "a:1:5", "--straggler", "gauss:1"}, "found \"gauss:1\""},
      {{"--workers", "a:1:5", "--servers", "2"}, "expected --exchange servers"},
      {{"--workers", "a:2:5", "--link-gb-per-s", "1"}, "expected model_bytes or a graph"},
      {{"--workers", "a:2:5", "--host-scale", "1,2,3"}, "expected one value of --host-scale"},
      {{"--workers", "a:2:5", "--exchange", "all-reduce", "--scheme", "asp"}, "found asp"},
      {{"--workers", "none.json"}, "none.json"},
      {{case_of(R"("scheme": "bsp", "step_time": [1], "commit_time": [], "rounds": 1)")},
       "/cases/0/commit_time"},
      {{case_of(R"("scheme": "bsp", "step_time": [0], "commit_time": [1], "rounds": 1)")},
       "/cases/0/step_time/0"},
      {{case_of(R"("scheme": "bsp", "step_time": [1], "commit_time": [1])")},
       "expected rounds or horizon, found none"}};
  for (const auto& [words, message] : bad) {
    expect_error(with({"sync"}, words), 1, message);
  }
  EXPECT_EQ(run({"sync"}).status, 2);
  EXPECT_EQ(run({"sync", "--workers", "a:1:5", "--gpu", "p4"}).status, 2);
}

}  // namespace sync_cli_test
}  // namespace perfmodel::test_support
