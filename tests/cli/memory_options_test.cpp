// --in-place, --recompute and --checkpoint 1,masks on the command line, and what predict makes of
// such graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"

namespace perfmodel::test_support {
namespace memory_options_test {

using ::testing::HasSubstr;
using ::testing::Not;

Words bert(const std::string& output, const Words& more = {}) {
  Words words = {"build", "bert",    "--layers", "2",          "--hidden", "256", "--heads",
                 "4",     "--batch", "8",        "--sequence", "128",      "-o",  output};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Kernel time of the graph that `build` writes with these flags.
double kernels_us(const Words& flags) {
  const std::string graph = scratch_file("memory.json");
  const Outcome built = run(bert(graph, flags));
  EXPECT_EQ(built.status, 0) << built.err;
  const Json prediction = json_of({"predict", graph, "--gpu", "a100-sxm-40gb"});
  EXPECT_TRUE(prediction["coverage"]["unmodelled_ops"].empty()) << prediction["coverage"];
  return prediction["kernel_sum_us"];
}

TEST(MemoryOptions, CostWhatIsComputedAgain) {
  const double plain = kernels_us({});
  const double dropout = kernels_us({"--recompute", "dropout"});
  const double selective = kernels_us({"--recompute", "selective"});
  const double full = kernels_us({"--recompute", "full"});
  EXPECT_GT(dropout, plain);
  EXPECT_GT(selective, dropout);
  EXPECT_GT(full, selective);
  EXPECT_EQ(kernels_us({"--recompute", "attention"}), selective);
  EXPECT_EQ(kernels_us({"--checkpoint", "1"}), full);
  EXPECT_LE(kernels_us({"--checkpoint", "1,masks"}), full);
  const double one = kernels_us({"--recompute", "dropout:1"});
  EXPECT_NEAR(one - plain, (dropout - plain) / 2, 0.01);
  EXPECT_EQ(kernels_us({"--recompute", "none"}), plain);
}

// GELU moves 9 and 13 bytes per element, forward and backward, instead of 8 and 12. A layer norm
// moves as many as before.
TEST(MemoryOptions, InPlaceOpsTakeAboutAsLong) {
  const double plain = kernels_us({});
  EXPECT_EQ(kernels_us({"--in-place", "layernorm"}), plain);
  const double gelu = kernels_us({"--in-place", "gelu"});
  EXPECT_GE(gelu, plain);
  EXPECT_LT(gelu, 1.01 * plain);
}

// Scores of many narrow heads take long to copy and little to compute.
TEST(MemoryOptions, OffloadThatLosesIsShownAsALoss) {
  const std::string graph = scratch_file("narrow_heads.json");
  const Outcome built = run({"build", "bert", "--layers", "4", "--hidden", "256", "--heads", "16",
                             "--batch", "16", "--sequence", "512", "-o", graph});
  ASSERT_EQ(built.status, 0) << built.err;
  const Outcome outcome =
      run({"whatif", graph, "--gpu", "a100-sxm-40gb", "--offload-activations", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(rows[1]["e2e_us"].get<double>(), 1.2 * rows[0]["e2e_us"].get<double>());
  EXPECT_LT(rows[1]["speed_up"], 1);
  EXPECT_LT(rows[1]["memory"]["needed_bytes"], rows[0]["memory"]["needed_bytes"]);
}

TEST(MemoryOptions, OptimizerAndGradientsOfRewriteWhatifAndMemory) {
  const std::string graph = scratch_file("adam.json");
  ASSERT_EQ(run(bert(graph)).status, 0);
  const auto needed = [&](const Words& flags) {
    Words words = {"memory", graph, "--gpu", "a100-sxm-40gb", "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false)["own_peaks"];
  };
  const Json plain = needed({}), eight = needed({"--optimizer", "adamw/8bit"}),
             half = needed({"--grad-dtype", "bf16"});
  EXPECT_LT(eight["optimizer"].get<double>(), 0.27 * plain["optimizer"].get<double>());
  EXPECT_NEAR(half["gradients"].get<double>() / plain["gradients"].get<double>(), 0.5, 0.01);
  const Outcome asked = run({"whatif", graph, "--gpu", "a100-sxm-40gb", "--optimizer", "same,8bit",
                             "--grad-dtype", "same,bf16", "--json"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_THAT(asked.out, Not(HasSubstr("\"error\": \"")));
  EXPECT_EQ(run({"rewrite", graph, "--optimizer", "8bit", "--grad-dtype", "fp16", "-o",
                 scratch_file("rewritten.json")})
                .status,
            0);
}

TEST(MemoryOptions, OfRewriteAndWhatif) {
  const std::string graph = scratch_file("plain.json");
  ASSERT_EQ(run(bert(graph)).status, 0);
  const Outcome rewritten = run({"rewrite", graph, "--in-place", "gelu:1,layernorm", "--recompute",
                                 "selective:1", "-o", scratch_file("rewritten.json")});
  EXPECT_EQ(rewritten.status, 0) << rewritten.err;
  EXPECT_THAT(rewritten.out, HasSubstr("1 tempo::gelu added"));
  // A comma parts values there.
  const Outcome asked = run({"whatif", graph, "--gpu", "a100-sxm-40gb", "--in-place",
                             "same,gelu+layernorm", "--checkpoint", "same,1+masks", "--json"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("in-place gelu+layernorm, checkpoint 1+masks"));
  EXPECT_THAT(asked.out, Not(HasSubstr("\"error\"")));
}

TEST(MemoryOptions, RefuseWithAReason) {
  const auto refused = [](const Words& flags, int status, const std::string& text) {
    const Outcome outcome = run(bert(scratch_file("refused.json"), flags));
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(scratch_file("refused.json")));
  };
  refused({"--in-place", "relu"}, 2, "expected gelu, layernorm or both, found \"relu\"");
  refused({"--in-place", "gelu,gelu"}, 2, "expected gelu once, found it again");
  refused({"--in-place", "gelu:"}, 2, "expected a number of layers after \":\", at least 1");
  refused({"--recompute", "dropout:0"}, 2, "expected a number of layers after \":\", at least 1");
  refused({"--recompute", "none:2"}, 2, "expected no number of layers after none, found one");
  refused({"--recompute", "most"}, 2,
          "expected one of none, full, selective, attention, op, dropout, scoring, found \"most\"");
  refused({"--recompute", "full:3"}, 1, "expected at most the 2 layers that there are, found 3");
  refused({"--attention", "efficient", "--recompute", "selective"}, 1,
          "recomputation: expected attention in ops of its own, found "
          "aten::_scaled_dot_product_efficient_attention");
  refused({"--checkpoint", ",masks"}, 2, "expected layers per segment");
}

}  // namespace memory_options_test
}  // namespace perfmodel::test_support
