// `perfpredict build dlrm`: its own flags, and those that all builders share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace build_dlrm_cli_test {

using ::testing::HasSubstr;

struct Built {
  Json summary, graph;

  std::multiset<std::string> names() const {
    std::multiset<std::string> found;
    for (const Json& node : graph["nodes"]) found.insert(node["name"].get<std::string>());
    return found;
  }
};

Built build(const Words& flags) {
  const std::string file = scratch_file("built.json");
  Words words = {"build", "dlrm", "-o", file, "--json"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << shown(words) << outcome.err;
  return {Json::parse(outcome.out), Json::parse(read(file))};
}

std::string complaint(const Words& flags, int status) {
  const std::string file = scratch_file("never.json");
  Words words = {"build", "dlrm", "-o", file};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, status) << shown(words);
  EXPECT_FALSE(fs::exists(file));
  return outcome.err;
}

TEST(BuildDlrmCommand, FlagsThatItAlwaysHadStay) {
  const Built built = build({"--preset", "ddp", "--batch", "64", "--optimizer", "rowwise_adagrad",
                             "--no-pinned-input", "--name", "mine"});
  for (const char* key :
       {"schema", "version", "graph", "built", "model", "parameters", "matrix_flop", "nodes",
        "top_level_ops", "command", "batch", "tables", "table_elements"}) {
    EXPECT_TRUE(built.summary.contains(key)) << key;
  }
  EXPECT_EQ(built.summary["model"], "mine");
  EXPECT_EQ(built.summary["command"],
            "perfpredict build dlrm --preset ddp --batch 64 --optimizer rowwise_adagrad --name "
            "mine --no-pinned-input");
  const auto names = built.names();
  EXPECT_EQ(names.count("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"), 1U);
  EXPECT_EQ(names.count("Optimizer.step#Adagrad.step"), 1U);
}

TEST(BuildDlrmCommand, TakesWhatAllBuildersTake) {
  const Built old = build({"--preset", "ddp", "--batch", "64", "--torch", "1.13", "--regions",
                           "loss-in-forward", "--resident-input"});
  EXPECT_EQ(old.names().count("## forward ##"), 1U);
  EXPECT_EQ(old.names().count("Optimizer.zero_grad#SGD.zero_grad"), 1U);
  EXPECT_EQ(old.names().count("aten::_to_copy"), 0U);  // nothing to copy

  const auto forward = build({"--preset", "ddp", "--batch", "64", "--phase", "forward"}).names();
  EXPECT_EQ(forward.count("Optimizer.step#SGD.step"), 0U);
  EXPECT_EQ(forward.count("aten::binary_cross_entropy"), 1U);

  const auto loop = build({"--preset", "ddp", "--batch", "64", "--implementation", "loop"}).names();
  EXPECT_EQ(loop.count("aten::_foreach_add_"), 0U);
  EXPECT_EQ(build({"--preset", "ddp", "--batch", "64"}).names().count("aten::_foreach_add_"), 1U);

  const auto kept = build({"--preset", "ddp", "--batch", "64", "--zero-grad", "zero",
                           "--no-table-batched", "--no-stacked-offsets"})
                        .names();
  EXPECT_EQ(kept.count("aten::sparse_resize_and_clear_"), 8U);  // one per table
}

TEST(BuildDlrmCommand, ACpuHasSingleTables) {
  const auto names = build({"--preset", "ddp", "--batch", "64", "--device", "cpu",
                            "--no-table-batched", "--no-sparse-gradients", "--optimizer", "adam"})
                         .names();
  EXPECT_EQ(names.count("aten::_embedding_bag_dense_backward"), 8U);
  EXPECT_EQ(names.count("Optimizer.step#Adam.step"), 1U);
  EXPECT_THAT(complaint({"--preset", "ddp", "--device", "cpu"}, 1),
              HasSubstr("tables: expected a GPU for batched tables, found a CPU"));
}

TEST(BuildDlrmCommand, CrossNetworkAndSeparateOptimizer) {
  const Built built =
      build({"--preset", "ddp", "--batch", "64", "--interaction", "dcnv2", "--cross-layers", "2",
             "--cross-rank", "32", "--dense-optimizer", "adam"});
  EXPECT_EQ(built.names().count("Optimizer.step#Adam.step"), 1U);
  EXPECT_EQ(built.names().count("fbgemm::split_embedding_codegen_lookup_sgd_function"), 1U);
  // 9 vectors of 128; 2 x (W, V, bias), bottom 3 x (128, 128), top 512-512-512-256-1.
  const std::int64_t width = 9 * 128;
  const std::int64_t parameters = 8 * 80'000 * 128 + 2 * (2 * width * 32 + width) +
                                  3 * (128 * 128 + 128) + (width * 512 + 512) +
                                  2 * (512 * 512 + 512) + (512 * 256 + 256) + 256 + 1;
  EXPECT_EQ(built.summary["parameters"], parameters);
}

TEST(BuildDlrmCommand, EveryOpOfEveryKindIsPriced) {
  const std::string file = scratch_file("priced.json");
  for (const Words& flags :
       {Words{"--optimizer", "adam"}, Words{"--optimizer", "adagrad", "--interaction", "dcnv2"},
        Words{"--no-table-batched"}, Words{"--no-table-batched", "--torch", "1.13"},
        Words{"--no-table-batched", "--no-sparse-gradients", "--optimizer", "adam"}}) {
    Words words = {"build", "dlrm", "--preset", "ddp", "--batch", "64", "-o", file};
    words.insert(words.end(), flags.begin(), flags.end());
    ASSERT_EQ(run(words).status, 0) << shown(words);
    const Outcome outcome = run({"predict", file, "--gpu", "a100-sxm-40gb", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out)["coverage"]["unmodelled_ops"].size(), 0U) << shown(words);
  }
}

TEST(BuildDlrmCommand, MistakesAreNamed) {
  EXPECT_THAT(complaint({"--preset", "mlpref"}, 1),
              HasSubstr("expected a DLRM preset (default, mlperf, ddp, dcnv2), found \"mlpref\""));
  EXPECT_THAT(complaint({"--batch", "8"}, 2), HasSubstr("expected --preset, or --tables"));
  EXPECT_THAT(complaint({"--preset", "ddp", "--optimizer", "lamb"}, 2), HasSubstr("--optimizer"));
  EXPECT_THAT(complaint({"--preset", "ddp", "--no-table-batched", "--optimizer", "adam"}, 1),
              HasSubstr("or dense gradients for Adam"));
  const Outcome torchrec =
      run({"build", "torchrec", "--preset", "v100", "-o", scratch_file("never.json")});
  EXPECT_EQ(torchrec.status, 1);
  EXPECT_THAT(torchrec.err, HasSubstr("expected a TorchRec preset (v100-8), found \"v100\""));
}

}  // namespace build_dlrm_cli_test
}  // namespace perfmodel::test_support
