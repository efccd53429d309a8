// `shard study`, eager hosts and the inputs of other frameworks, from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"

namespace perfmodel::test_support {
namespace shard_study_test {

using ::testing::HasSubstr;
using ::testing::Not;

// TorchRec's list: ten tables of which the last fits no GPU whole.
std::string list() {
  static const std::string file = [] {
    Json tables = Json::array(), constraints = Json::object();
    for (int t = 0; t < 10; ++t) {
      const std::string name = "t" + std::to_string(t);
      tables.push_back({{"name", name},
                        {"num_embeddings", t == 9 ? 180'000'000 : 10'000 << t},
                        {"embedding_dim", 128},
                        {"feature_names", {"f" + std::to_string(t)}},
                        {"data_type", "FP32"},
                        {"pooling", "SUM"}});
      constraints[name] = {{"pooling_factors", {1 + t % 4}}};
    }
    return written("torchrec_list.json",
                   Json{{"tables", tables}, {"constraints", constraints}}.dump());
  }();
  return file;
}

const Words kMachine = {"--gpu", "h100-sxm-80gb", "--world", "4", "--batch-per-gpu", "1024"};

TEST(ShardStudy, AnswersInOnePageAndDrawings) {
  const fs::path page = scratch() / "study.html", plots = scratch() / "plots",
                 csv = scratch() / "study.csv";
  const auto outcome =
      run(with({"shard", "study", list(), "--launch", "graphs", "--worlds", "1,4",
                "--samples-per-s", "1000000", "--time-budget", "3", "--html", page.string(),
                "--plots", plots.string(), "--csv", csv.string(), "--json"},
               kMachine));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-shard-study");
  const Json &ways = json["way"], &worlds = json["GPUs"];
  ASSERT_EQ(ways.size(), 6u);
  EXPECT_THAT(ways[0].value("error", ""), HasSubstr("t9"));  // whole tables do not fit
  EXPECT_GT(ways[3]["predicted_us"].get<double>(), 0);
  EXPECT_THAT(worlds[0].value("error", ""), HasSubstr("short"));
  EXPECT_GT(worlds[1]["samples_per_s"].get<double>(), 1e6);
  EXPECT_EQ(json["change"].size(), 5u);
  EXPECT_THAT(json["findings"].dump(), HasSubstr("The fewest GPUs whose memory is enough: 4."));
  EXPECT_THAT(read(page.string()), HasSubstr("does not fit"));
  EXPECT_THAT(read(page.string()), HasSubstr("<svg"));
  EXPECT_THAT(read((plots / "scaling.svg").string()), HasSubstr("GPUs"));
  EXPECT_THAT(read(csv.string()), HasSubstr("way,\"table-wise\""));
}

// Choices of the search for tables are shown, written into the plan and priced the same from there.
TEST(ShardStudy, PlansCarryWhatWasChosenForTables) {
  const std::string tables = written("skewed.csv",
                                     "table,rows,dim,pooling,zipf_exponent\na,4000000,128,40,1.1\n"
                                     "b,2000000,128,30,1.1\nc,8000000,128,20,1.1\n");
  // Software that launches all at once: no host hides what is chosen.
  const Words machine = {
      "--gpu",           "h100-sxm-80gb", "--world",   "16",
      "--batch-per-gpu", "4096",          "--network", "hugectr,flat,rings,in-order"};
  const std::string plan = scratch_file("chosen_plan.json");
  const auto found = run(with({"shard", tables, "--hot-rows", "auto", "--choose",
                               "deduplication,cache,wire", "-o", plan, "--json"},
                              machine));
  ASSERT_EQ(found.status, 0) << found.err;
  const Json best = Json::parse(found.out)["plans"][0];
  EXPECT_THAT(best["placement"].dump(), HasSubstr("wire_bytes"));
  EXPECT_THAT(best["placement"].dump(), HasSubstr("hot_rows"));
  const auto judged = run(with({"shard", "eval", tables, "--plan", plan, "--json"}, machine));
  ASSERT_EQ(judged.status, 0) << judged.err;
  EXPECT_EQ(Json::parse(judged.out)["plans"][0]["predicted_us"], best["predicted_us"]);
  const auto shown = run(with({"shard", tables, "--choose", "deduplication,cache,wire"}, machine));
  EXPECT_THAT(shown.out, HasSubstr("(--choose none leaves tables as they are)"));
  // Vectors are rounded only on request.
  const auto unasked = run(with({"shard", tables, "--json"}, machine));
  EXPECT_THAT(Json::parse(unasked.out)["plans"][0]["placement"].dump(),
              Not(HasSubstr("wire_bytes")));
  const auto none = run(with({"shard", tables, "--choose", "none", "--json"}, machine));
  const Json plain = Json::parse(none.out)["plans"][0];
  EXPECT_THAT(plain["placement"].dump(), Not(HasSubstr("wire_bytes")));
  EXPECT_GT(plain["predicted_us"], best["predicted_us"]);
}

// The graphs of a plan, predicted, and the plan, evaluated: within a tenth.
TEST(ShardStudy, PlansAgreeWithPredictedGraphs) {
  const std::string study = written("eager.json", R"({"schema": "perfmodel-sharding-study",
  "version": 1, "gpu": "h100-sxm-80gb", "world": 8, "batch_per_rank": 1024,
  "dense": {"bottom_mlp": [13, 512, 256, 64], "top_mlp": [512, 256, 1]},
  "tables": [{"name": "w", "rows": 100000, "dim": 64, "pooling": 5, "count": 8,
              "types": ["table_wise"]},
             {"name": "r", "rows": 200000, "dim": 64, "pooling": 5, "count": 6,
              "types": ["row_wise"]},
             {"name": "d", "rows": 1000, "dim": 64, "pooling": 1, "count": 3,
              "types": ["data_parallel"]}]})");
  const std::string plan = scratch_file("eager_plan.json");
  const fs::path folder = scratch() / "eager_ranks";
  ASSERT_EQ(run({"shard", study, "-o", plan}).status, 0);
  const auto exported =
      run({"shard", "export", study, "--plan", plan, "--format", "graphs", "-o", folder.string()});
  ASSERT_EQ(exported.status, 0) << exported.err;
  for (const std::string launch : {"eager", "graphs", "compiled"}) {
    const auto judged = run({"shard", "eval", study, "--plan", plan, "--launch", launch, "--json"});
    ASSERT_EQ(judged.status, 0) << judged.err;
    std::vector<std::string> job = {"predict"};
    for (int rank = 0; rank < 8; ++rank) {
      job.push_back((folder / ("rank_" + std::to_string(rank) + ".json")).string());
    }
    const auto predicted = run(with(job, {"--gpu", "h100-sxm-80gb", "--launch", launch, "--json"}));
    ASSERT_EQ(predicted.status, 0) << predicted.err;
    const double evaluated = Json::parse(judged.out)["plans"][0]["predicted_us"];
    const double of_graph = Json::parse(predicted.out)["mean_e2e_us"];
    EXPECT_NEAR(evaluated / of_graph, 1, 0.1);
    std::printf("%s: shard eval %.0f us, predict %.0f us: %+.1f %%\n", launch.c_str(), evaluated,
                of_graph, 100 * (evaluated / of_graph - 1));
  }
}

// Under autocast: products in half types.
TEST(ShardStudy, GraphsKeepTheTypeOfTheDensePart) {
  const std::string study = written("half.json", R"({"schema": "perfmodel-sharding-study",
  "version": 1, "gpu": "h100-sxm-80gb", "world": 2, "batch_per_rank": 256,
  "dense": {"bottom_mlp": [13, 64], "top_mlp": [32, 1], "dtype": "float16"},
  "tables": [{"name": "w", "rows": 1000, "dim": 64, "pooling": 5, "count": 4,
              "types": ["table_wise"]}]})");
  const fs::path folder = scratch() / "half_ranks";
  ASSERT_EQ(run({"shard", "export", study, "--format", "graphs", "-o", folder.string()}).status, 0);
  EXPECT_THAT(read((folder / "rank_0.json").string()), HasSubstr("c10::Half"));
}

TEST(ShardStudy, SaysWhatIsWrong) {
  expect_error(with({"shard", list(), "--network", "hugectl"}, kMachine), 1,
               "--network: expected plain");
  expect_error(with({"shard", list(), "--host", "none.json"}, kMachine), 1, "none.json");
  expect_error(with({"shard", written("batches.json", R"({"schema": "perfmodel-sharding-study",
  "version": 1, "tables": [{"name": "t", "rows": 10, "dim": 64,
  "features": [{"pooling": 1, "batch": [8, 8]}]}]})")},
                    kMachine),
               1, "table t: expected a batch of each of 4 ranks, found 2");
  expect_error(with({"shard", list(), "--indices", "t0"}, kMachine), 1,
               "--indices: expected TABLE=FILE");
  const std::string access = written(
      "access.csv", "reuse_gt,reuse_le,frac_unique_rows,frac_lookups\n0,1,0.6,0.2\n1,,0.4,0.5\n");
  expect_error(with({"shard", list(), "--access", access}, kMachine), 1, "sum of 0.7");
  const std::string widths =
      written("widths.csv", "table,rows,dim,pooling\na,100,64,1\nb,100,32,1\n");
  expect_error(with({"shard", widths, "--bottom", "13-64", "--top", "8-1"}, kMachine), 1,
               "dot products");
  expect_error(with({"shard", "study", widths, "--bottom", "13-64", "--top", "8-1"}, kMachine), 1,
               "dot products");
  EXPECT_EQ(run(with({"shard", widths, "--bottom", "13-64", "--top", "8-1", "--interaction", "cat"},
                     kMachine))
                .status,
            0);
  expect_error(with({"shard", "study", list(), "--global-batch", "1001"}, kMachine), 1,
               "expected a multiple of 4 GPUs, found 1001");
}

}  // namespace shard_study_test
}  // namespace perfmodel::test_support
