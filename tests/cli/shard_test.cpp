#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "program.hpp"

namespace perfmodel::test_support {
namespace shard_test {

using ::testing::HasSubstr;
using ::testing::Not;

// Twelve made-up tables.
std::string tables() {
  static const std::string file = [] {
    std::string text = "table,rows,dim,pooling\n";
    for (int t = 0; t < 12; ++t) {
      text += "user_" + std::to_string(t) + "," + std::to_string(1000 << t) + ",64," +
              std::to_string(1 + t % 5) + "\n";
    }
    return written("tables.csv", text);
  }();
  return file;
}

std::string study() {
  static const std::string file = written(
      "study.json", R"({"schema": "perfmodel-sharding-study", "version": 1, "name": "made up",
  "gpu": "a100-sxm-80gb", "world": 4, "batch_per_rank": 1024,
  "dense": {"bottom_mlp": [13, 512, 64], "top_mlp": [512, 256, 1]},
  "tables": [{"name": "items", "rows": 4000000, "dim": 64, "pooling": 20},
             {"name": "users", "rows": 2000000, "dim": 64, "pooling": 1, "count": 3},
             {"name": "countries", "rows": 200, "dim": 64, "pooling": 1}]})");
  return file;
}

// Arguments of a search for plans: with sanitizers, twenty times slower, it gets one second.
Words searching(Words arguments) {
#ifdef PERFMODEL_SANITIZED
  return with(std::move(arguments), {"--time-budget", "1"});
#else
  return arguments;
#endif
}

const Words kMachine = {"--gpu", "h100-sxm-80gb", "--world", "4", "--batch-per-gpu", "2048"};

Json ranked(const Words& more) {
  const auto outcome = run(with(searching({"shard", study(), "--json"}), more));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? Json::parse(outcome.out) : Json();
}

TEST(ShardCommand, RanksPlans) {
  const auto outcome = run(with({"shard", tables(), "--plans", "2", "--json"}, kMachine));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-shard");
  EXPECT_EQ(json["costs"], "calibrated");
  ASSERT_GE(json["plans"].size(), 1u);
  const Json& best = json["plans"][0];
  EXPECT_LT(best["low_us"].get<double>(), best["predicted_us"].get<double>());
  EXPECT_GE(best["high_us"].get<double>(), best["predicted_us"].get<double>());
  EXPECT_EQ(best["per_rank"].size(), 4u);
  EXPECT_EQ(best["memory_bytes"].size(), 4u);
  std::set<std::string> placed;
  for (const Json& table : best["placement"]) placed.insert(table["table"].get<std::string>());
  EXPECT_EQ(placed.size(), 12u);
  EXPECT_THAT(json["warnings"].dump(), HasSubstr("no dense part"));
  EXPECT_LE(json["search"]["lower_bound_us"].get<double>(), best["predicted_us"].get<double>());
  // The same command with its name.
  const auto named = run(with({"shard", "rank", tables(), "--plans", "2", "--json"}, kMachine));
  EXPECT_EQ(Json::parse(named.out)["plans"], json["plans"]);
}

TEST(ShardCommand, ReportsForPeople) {
  const auto outcome = run(searching({"shard", study()}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("made up: 5 tables, 2.6 GB, on 4 x a100-sxm-80gb"));
  EXPECT_THAT(outcome.out, HasSubstr("Limit: "));
  EXPECT_THAT(outcome.out, HasSubstr("Memory of GPU "));
  EXPECT_THAT(outcome.out, HasSubstr("countries"));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    std::size_t characters = 0;
    for (char c : line) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(characters, 100u) << line;
  }
}

TEST(ShardCommand, FlagsOverrideTheStudy) {
  const Json json = ranked({"--world", "8", "--gpu", "h100-sxm-80gb", "--batch-per-gpu", "64"});
  EXPECT_EQ(json["world"], 8);
  EXPECT_EQ(json["gpu"], "h100-sxm-80gb");
  EXPECT_EQ(json["topology"], "hgx-h100");
  EXPECT_EQ(json["batch_per_gpu"], 64);
  const Json whole = ranked({"--types", "table_wise"});
  for (const Json& table : whole["plans"][0]["placement"]) {
    EXPECT_EQ(table["sharding_type"], "table_wise");
  }
  const Json slower = ranked({"--host-us", "123456"});
  EXPECT_EQ(slower["plans"][0]["predicted_us"], 123456.0);
}

TEST(ShardCommand, RatesAsTorchrecDoes) {
  const Json json = ranked({"--costs", "torchrec"});
  EXPECT_EQ(json["costs"], "torchrec");
  const Json& best = json["plans"][0];
  EXPECT_TRUE(best.contains("rating_ms"));
  EXPECT_FALSE(best.contains("predicted_us"));
  double most = 0;
  for (const Json& rank : best["per_rank"]) {
    most = std::max(
        most, rank["forward_compute_ms"].get<double>() + rank["forward_comms_ms"].get<double>() +
                  rank["backward_compute_ms"].get<double>() +
                  rank["backward_comms_ms"].get<double>() + rank["prefetch_ms"].get<double>());
  }
  EXPECT_DOUBLE_EQ(best["rating_ms"].get<double>(), most);
}

// One table on one rank, by hand: (ids + rows + vectors) over HBM's bandwidth, vectors over the
// link.
TEST(ShardCommand, TakesTorchrecsMachine) {
  const std::string machine = written("torchrec.json", R"({"schema": "perfmodel-sharding-study",
  "version": 1, "gpu": "a100-sxm-80gb", "world": 2, "batch_per_rank": 1000,
  "torchrec": {"hbm_mem_bw": 1e9, "intra_host_bw": 1e8, "hbm_cap": 1000000000000},
  "tables": [{"name": "t", "rows": 1000000, "dim": 128, "pooling": 10,
              "types": ["table_wise"]}]})");
  const auto outcome = run({"shard", machine, "--costs", "torchrec", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double ids = 10 * 1000 * 2, vectors = 1000 * 2 * 128 * 4;
  const double forward = (8 * ids + ids * 128 * 4 + vectors) / 1e9, exchange = vectors / 1e8;
  EXPECT_NEAR(Json::parse(outcome.out)["plans"][0]["rating_ms"].get<double>(),
              3 * forward + 2 * exchange, 1e-12);
}

TEST(ShardCommand, SaysWhatItDoesNotUse) {
  const std::string cached = written("cached.json", R"({"schema": "perfmodel-sharding-study",
  "version": 1, "gpu": "a100-sxm-80gb", "world": 2, "batch_per_rank": 1000,
  "tables": [{"name": "t", "rows": 1000, "dim": 128, "pooling": 10,
              "cache": {"expected_lookups": 500, "distances": [3, 2, 1]}}]})");
  const auto outcome = run(searching({"shard", cached, "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(Json::parse(outcome.out)["warnings"].dump(), HasSubstr("distances of caches"));
  const auto rated = run(searching({"shard", cached, "--costs", "torchrec", "--json"}));
  EXPECT_THAT(Json::parse(rated.out)["warnings"].dump(), Not(HasSubstr("distances of caches")));
}

TEST(ShardCommand, PlansRoundTrip) {
  for (const char* format : {"torchrec", "hugectr"}) {
    const std::string plan = scratch_file(std::string(format) + "_plan.json");
    const auto searched = run(searching({"shard", study(), "--types", "table_wise,data_parallel",
                                         "-o", plan, "--format", format, "--json"}));
    ASSERT_EQ(searched.status, 0) << searched.err;
    const auto judged = run({"shard", "eval", study(), "--plan", plan, "--json"});
    ASSERT_EQ(judged.status, 0) << judged.err;
    const Json found = Json::parse(searched.out)["plans"][0],
               again = Json::parse(judged.out)["plans"][0];
    EXPECT_EQ(found["predicted_us"], again["predicted_us"]) << format;
    EXPECT_EQ(found["memory_bytes"], again["memory_bytes"]) << format;
    const std::string copy = plan + ".copy";
    ASSERT_EQ(
        run({"shard", "export", study(), "--plan", plan, "--format", format, "-o", copy}).status,
        0);
    EXPECT_EQ(read(copy), read(plan)) << format;
  }
}

TEST(ShardCommand, ComparesPlans) {
  const std::string plan = scratch_file("rows.json");
  ASSERT_EQ(run(searching({"shard", study(), "--types", "row_wise", "-o", plan})).status, 0);
  const auto outcome = run(searching(
      {"shard", "compare", study(), "--plan", plan, "--network", "hugectr,flat,rings,in-order"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("found against rows.json: -"));
  EXPECT_THAT(outcome.out, HasSubstr("row_wise"));
  const auto same = run({"shard", "compare", study(), "--plan", plan, "--plan", plan});
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("The plans are the same."));
}

TEST(ShardCommand, SweepsOneInput) {
  const std::string csv = scratch_file("sweep.csv"), svg = scratch_file("sweep.svg");
  const auto outcome =
      run(searching({"shard", "sweep", study(), "--axis", "batch-per-gpu", "--values",
                     "256,1024,4096", "--csv", csv, "--plot", svg, "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  const auto time = [&](std::size_t row) {
    return rows[row]["report"]["plans"][0]["predicted_us"].get<double>();
  };
  EXPECT_LT(time(0), time(1));
  EXPECT_LT(time(1), time(2));
  EXPECT_THAT(read(csv), HasSubstr("batch-per-gpu,predicted_us"));
  EXPECT_THAT(read(svg), HasSubstr("<svg"));
  const auto text =
      run(searching({"shard", "sweep", study(), "--axis", "world", "--values", "1,2,16"}));
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("samples/s"));
}

TEST(ShardCommand, WritesAGraphPerGpu) {
  const fs::path folder = scratch() / "ranks";
  const auto exported =
      run(searching({"shard", "export", study(), "--format", "graphs", "-o", folder.string()}));
  ASSERT_EQ(exported.status, 0) << exported.err;
  Words predict = {"predict"};
  for (int rank = 0; rank < 4; ++rank) {
    predict.push_back((folder / ("rank_" + std::to_string(rank) + ".json")).string());
  }
  const auto predicted = run(with(predict, {"--gpu", "a100-sxm-80gb", "--json"}));
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const Json json = Json::parse(predicted.out);
  EXPECT_EQ(json["ranks"].size(), 4u);
  EXPECT_TRUE(json["coverage"]["unmodelled_ops"].empty()) << json["coverage"].dump();
}

TEST(ShardCommand, TakesTablesFromAGraph) {
  const std::string graph = scratch_file("dlrm.json");
  ASSERT_EQ(run({"build", "dlrm", "--preset", "ddp", "--batch", "512", "-o", graph}).status, 0);
  const auto outcome = run({"shard", graph, "--gpu", "a100-sxm-80gb", "--world", "4", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["tables"], 8);
  EXPECT_EQ(json["batch_per_gpu"], 512);
}

TEST(ShardCommand, ComparesHashedArrays) {
  const Json json = ranked({"--compress", "robe:m=1e6,Z=32,kernel=chunked"});
  const Json& compression = json["compression"];
  ASSERT_GE(compression["rows"].size(), 3u);
  EXPECT_EQ(compression["hashed_fits_from"], 1);
  for (const Json& table : json["plans"][0]["placement"]) {
    EXPECT_EQ(table["compute_kernel"], "hashed");
  }
  const auto text = run(searching({"shard", study(), "--compress", "robe:m=1e6,Z=32"}));
  EXPECT_THAT(text.out, HasSubstr("Hashed array"));
}

// MLPerf's tables of Criteo (96.1 GB in fp32), a thousandth of them hashed, next to the best
// sharded plan on 1 to 64 A100: one GPU cannot hold the tables; within a node exchanging vectors is
// cheaper than keeping the array alike everywhere, over several nodes it is not.
TEST(ShardCommand, CrossoverOfCriteosTablesOnOneTo64Gpus) {
  const std::string graph = scratch_file("criteo.json");
  ASSERT_EQ(run({"build", "dlrm", "--preset", "mlperf", "--batch", "2048", "-o", graph}).status, 0);
  // The tables alone, by software that launches all at once.
  const auto outcome = run({"shard", graph, "--gpu", "a100-sxm-80gb", "--world", "64",
                            "--interaction", "none", "--network", "hugectr,flat,rings,in-order",
                            "--compress", "robe:ratio=1000,Z=32,kernel=chunked", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json compression = Json::parse(outcome.out)["compression"];
  EXPECT_NEAR(4e-9 * compression["table_elements"].get<double>(), 96.1, 0.1);
  EXPECT_NEAR(compression["factor"].get<double>(), 1000, 0.01);
  EXPECT_EQ(compression["hashed_fits_from"], 1);
  EXPECT_EQ(compression["sharded_fits_from"], 2);
  std::vector<int> hashed_wins;
  int world = 1;
  for (const Json& row : compression["rows"]) {
    EXPECT_EQ(row["world"], world);
    world *= 2;
    if (row["faster"] == "hashed") hashed_wins.push_back(row["world"]);
  }
  EXPECT_EQ(world, 128);
  EXPECT_TRUE(compression["rows"][0]["sharded_us"].is_null());
  EXPECT_EQ(hashed_wins, (std::vector{1, 16, 32, 64}));
}

TEST(ShardCommand, DrawsLoadAndMemory) {
  const std::string svg = scratch_file("plan.svg");
  ASSERT_EQ(run(searching({"shard", study(), "--plot", svg})).status, 0);
  EXPECT_THAT(read(svg), HasSubstr("Memory of each GPU"));
}

TEST(ShardCommand, SaysWhatIsWrong) {
  expect_error({"shard", tables(), "--gpu", "a100-sxm-80gb"}, 1,
               "expected a number of GPUs (--world)");
  expect_error({"shard", tables(), "--gpu", "a100-sxm-80gb", "--world", "4"}, 1,
               "expected a batch (--batch-per-gpu), found none");
  expect_error({"shard", tables(), "--world", "4", "--batch-per-gpu", "1"}, 1,
               "expected a GPU (--gpu)");
  expect_error(with({"shard", tables(), "--topology", "ring-of-fire"}, kMachine), 1,
               "ring-of-fire");
  expect_error(with({"shard", tables()}, {"--gpu", "h900", "--world", "4", "--batch-per-gpu", "1"}),
               1, "h900");
  expect_error(
      with({"shard", written("twice.csv", "table,rows,dim,pooling\na,5,8,1\na,6,8,1\n")}, kMachine),
      1, "twice.csv:3");
  expect_error(
      with({"shard", written("negative.csv", "table,rows,dim,pooling\na,-5,8,1\n")}, kMachine), 1,
      "negative.csv:2");
  expect_error({"shard", written("huge.csv", "table,rows,dim,pooling\nbig,900000000,128,1\n"),
                "--gpu", "a100-sxm-80gb", "--world", "2", "--batch-per-gpu", "16"},
               1, "short. What would help: ");
  expect_error({"shard", study(), "--world", "8", "--gpus-per-host", "3"}, 1, "3 per host");
  const std::string plan = scratch_file("other.json");
  ASSERT_EQ(run(searching({"shard", study(), "--types", "table_wise", "-o", plan})).status, 0);
  expect_error(with({"shard", "eval", tables(), "--plan", plan}, kMachine), 1, "items");
  const std::string rows = scratch_file("four.json");
  ASSERT_EQ(run(searching({"shard", study(), "--types", "row_wise", "-o", rows})).status, 0);
  expect_error({"shard", "eval", study(), "--plan", rows, "--world", "8"}, 1,
               "four.json: expected a plan for 8 GPUs, found one for 4");
  expect_error({"shard", study(), "--types", "data_parallel", "--kernels", "fused"}, 1,
               "expected a type and a kernel that go together");
  expect_error({"shard", study(), "--compress", "robe:Z=3"}, 1, "expected robe:m=ELEMENTS");
  expect_error({"shard", study(), "--compress", "robe:m=5,tables=nobody"}, 1, "nobody");
  expect_error({"shard", "sweep", study(), "--axis", "world", "--values", "4,x"}, 1,
               "expected values of world, found x");
  expect_error({"shard", scratch_file("missing.json"), "--gpu", "h100-sxm-80gb"}, 1,
               "missing.json");
}

TEST(ShardCommand, BadUsageIsStatusTwo) {
  EXPECT_EQ(run({"shard"}).status, 2);
  EXPECT_EQ(run({"shard", study(), "--costs", "cheap"}).status, 2);
  EXPECT_EQ(run({"shard", "eval", study()}).status, 2);
  EXPECT_EQ(run({"shard", study(), "--types", "diagonal"}).status, 2);
  EXPECT_EQ(run({"shard", "--help"}).status, 0);
  EXPECT_EQ(run({"shard", "rank", "--help"}).status, 0);
}

// Ctrl-C: the best so far is printed. (In the background `timeout` would send the signal twice, and
// a second one ends the program.)
TEST(ShardCommand, AnInterruptedSearchPrintsWhatItHas) {
  std::string text = "table,rows,dim,pooling\n";
  for (int t = 0; t < 1500; ++t) {
    text += "t" + std::to_string(t) + "," + std::to_string(1000 + 977 * t) + ",64," +
            std::to_string(1 + t % 19) + "\n";
  }
  const std::string many = written("many.csv", text);
#ifdef PERFMODEL_SANITIZED  // it needs longer to have anything
  const std::string seconds = "20";
#else
  const std::string seconds = "3";
#endif
  const auto outcome = run(with({"shard", many, "--time-budget", "60", "--world", "64", "--json"},
                                {"--gpu", "h100-sxm-80gb", "--batch-per-gpu", "512"}),
                           "timeout --foreground --preserve-status -s INT " + seconds);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["plans"][0]["placement"].size(), 1500u);
}

}  // namespace shard_test
}  // namespace perfmodel::test_support
