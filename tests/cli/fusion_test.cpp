#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"

namespace perfmodel::test_support {
namespace fusion_test {

using ::testing::HasSubstr;

Outcome rewrite(const std::string& file, Words flags) {
  flags.insert(flags.begin(), {"rewrite", file, "-o", scratch_file("rewritten.json")});
  return run(flags);
}

TEST(FusionCommand, FusesTables) {
  const std::string bags =
      built("bags.json", {"dlrm", "--preset", "ddp", "--batch", "512", "--no-table-batched"});
  const auto fused = rewrite(bags, {"--fuse-tables", "sgd", "--json"});
  ASSERT_EQ(fused.status, 0) << fused.err;
  const Json added = Json::parse(fused.out)["rewrites"][0]["added"];
  EXPECT_EQ(added["fbgemm::split_embedding_codegen_lookup_sgd_function"], 1);
  const auto unknown = rewrite(bags, {"--fuse-tables", "adam"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected sgd or rowwise_adagrad, found adam"));
  const auto twice = rewrite(bags, {"--fuse-tables", "sgd", "--fuse-tables", "sgd"});
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.err, HasSubstr("expected at least two aten::embedding_bag in a step, found 0"));
}

TEST(FusionCommand, FusesLosses) {
  const std::string net =
      built("net.json", {"resnet", "--preset", "resnet18", "--batch", "2", "--optimizer", "none"});
  const auto fused = rewrite(net, {"--fuse-loss", "linear", "--json"});
  ASSERT_EQ(fused.status, 0) << fused.err;
  EXPECT_EQ(Json::parse(fused.out)["rewrites"][0]["added"]["liger::cross_entropy"], 2);
  const auto unknown = rewrite(net, {"--fuse-loss", "apex"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected liger or linear, found apex"));
  const auto norms = rewrite(net, {"--fuse-norms"});
  EXPECT_EQ(norms.status, 1);
  EXPECT_THAT(norms.err,
              HasSubstr("expected RMS or layer norms in single ops on a GPU, found none"));
}

TEST(FusionCommand, FusesPointwiseOps) {
  const std::string resnet =
      built("resnet.json", {"resnet", "--preset", "resnet18", "--batch", "2"});
  const auto fused = rewrite(resnet, {"--fuse-elementwise", "--fuse-elementwise", "--json"});
  ASSERT_EQ(fused.status, 0) << fused.err;
  const Json rewrites = Json::parse(fused.out)["rewrites"];
  EXPECT_EQ(rewrites[0]["added"]["triton_poi_fused_add_clamp_min_0"], 2);
  EXPECT_EQ(rewrites[1]["nodes_changed"], 0);
  EXPECT_TRUE(rewrites[1]["added"].empty());
  EXPECT_TRUE(rewrites[1]["gone"].empty());
}

// A mode may follow the flag, but nothing else.
TEST(FusionCommand, CompilesByDefault) {
  const std::string net =
      built("net.json", {"resnet", "--preset", "resnet18", "--batch", "2", "--optimizer", "none"});
  const auto rewrites = [&](Words flags) {
    flags.push_back("--json");
    const auto made = rewrite(net, flags);
    EXPECT_EQ(made.status, 0) << made.err;
    return Json::parse(made.out)["rewrites"][0];
  };
  const Json plain = rewrites({"--compile"});
  EXPECT_EQ(plain["rewrite"], "--compile default");
  EXPECT_EQ(plain, rewrites({"--compile", "default"}));
  EXPECT_EQ(rewrites({"--compile", "max-autotune"})["rewrite"], "--compile max-autotune");
  const auto swallowed = run({"rewrite", "--compile", net, "-o", scratch_file("rewritten.json")});
  EXPECT_EQ(swallowed.status, 2);
  EXPECT_THAT(swallowed.err,
              HasSubstr("--compile: expected default, reduce-overhead or max-autotune"));
}

}  // namespace fusion_test
}  // namespace perfmodel::test_support
