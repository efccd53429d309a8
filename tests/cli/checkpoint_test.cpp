// --checkpoint on the command line, and what predict makes of such a graph.
#include <gtest/gtest.h>

#include "program.hpp"

namespace perfmodel::test_support {
namespace checkpoint_test {

Words gpt(const std::string& file, const Words& more = {}) {
  Words words = {"build",          "gpt", "--layers",     "4",   "--hidden",   "64", "--heads", "4",
                 "--feed-forward", "128", "--vocabulary", "100", "--sequence", "32"};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"-o", file});
  return words;
}

Json prediction(const std::string& file) {
  return json_of({"predict", file, "--gpu", "a100-sxm-40gb"});
}

TEST(Checkpoint, BuiltOrRewrittenIsTheSameStep) {
  const std::string plain = scratch_file("plain.json");
  const std::string rewritten = scratch_file("rewritten.json");
  const std::string built = scratch_file("built.json");
  ASSERT_EQ(run(gpt(plain)).status, 0);
  ASSERT_EQ(run(gpt(built, {"--checkpoint", "2"})).status, 0);
  ASSERT_EQ(run({"rewrite", plain, "--checkpoint", "2", "-o", rewritten}).status, 0);
  const Json before = prediction(plain), after = prediction(built);
  EXPECT_EQ(after["e2e_us"], prediction(rewritten)["e2e_us"]);
  EXPECT_TRUE(after["coverage"]["unmodelled_ops"].empty());
  // A step of so small a model is the host's: it calls the layers' forward ops once more.
  EXPECT_GT(after["cpu_us"], 1.1 * before["cpu_us"].get<double>());
  EXPECT_LT(after["cpu_us"], 1.4 * before["cpu_us"].get<double>());
  EXPECT_GT(after["kernel_sum_us"], 1.1 * before["kernel_sum_us"].get<double>());
  ASSERT_EQ(after["phases"].size(), before["phases"].size());  // checkpoints are none
}

TEST(Checkpoint, TakesGraphsWithFlashAttention) {
  const std::string plain = scratch_file("flash.json");
  const std::string rewritten = scratch_file("flash_checkpointed.json");
  ASSERT_EQ(run(gpt(plain, {"--attention", "flash"})).status, 0);
  const Outcome outcome = run({"rewrite", plain, "--checkpoint", "2", "-o", rewritten});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json before = prediction(plain), after = prediction(rewritten);
  EXPECT_TRUE(after["coverage"]["unmodelled_ops"].empty());
  EXPECT_GT(after["kernel_sum_us"], 1.1 * before["kernel_sum_us"].get<double>());
}

TEST(Checkpoint, RefusesWithAReason) {
  const std::string file = scratch_file("refused.json");
  Outcome outcome = run(gpt(file, {"--checkpoint", "my layer"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("--checkpoint my layer: checkpointing: expected a region of the "
                             "forward pass whose name contains \"my layer\", found none"),
            std::string::npos)
      << outcome.err;
  EXPECT_FALSE(fs::exists(file));
  outcome = run(gpt(file, {"--checkpoint", "-1"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("expected layers per segment"), std::string::npos) << outcome.err;
}

}  // namespace checkpoint_test
}  // namespace perfmodel::test_support
