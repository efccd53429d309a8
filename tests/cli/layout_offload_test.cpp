// perfpredict layout --offload, as its users call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"

namespace perfmodel::test_support {
namespace layout_offload_test {

using ::testing::HasSubstr;

// A model whose layers are priced in milliseconds, on a node.
Words layout(const std::string& command, const Words& more) {
  return with({"layout",         command, "--gpu",          "h100-sxm-80gb",
               "--layers",       "8",     "--hidden",       "1024",
               "--heads",        "8",     "--feed-forward", "4096",
               "--vocabulary",   "32000", "--sequence",     "1024",
               "--global-batch", "32",    "--world",        "8"},
              more);
}

TEST(LayoutOffloadCommand, SaysHostMemory) {
  const Words words = layout("eval", {"--zero", "3", "--offload", "zero-infinity", "--host-memory",
                                      "1GB", "--host-gb-per-s", "200"});
  const Json one = json_of(words)["layouts"][0];
  EXPECT_EQ(one["offload"], "optimizer+parameters");
  double sum = 0;
  for (const auto& [part, bytes] : one["host_memory_parts_bytes"].items())
    sum += bytes.get<double>();
  EXPECT_NEAR(one["host_memory_gb"].get<double>(), sum / 1e9, 1e-5 * sum / 1e9);
  EXPECT_FALSE(one["fits"].get<bool>());
  EXPECT_GT(one["terms_ms"]["offload"].get<double>(), 0);
  const std::string text = output_of(words);
  EXPECT_THAT(text, HasSubstr("GB of host memory per node\n"));
  EXPECT_THAT(text, HasSubstr("GB per node of 1.0: weights"));
  EXPECT_THAT(text, HasSubstr("optimizer+parameters on the host"));
  EXPECT_THAT(text, HasSubstr("the optimizer on the GPUs, or faster hosts"));
}

TEST(LayoutOffloadCommand, RowsOfTablesOffload) {
  const std::string table =
      written("offload.csv",
              "model,sequence,global_batch,dp,zero,offload,gated,tied,sequence_parallel\n"
              "gpt2,1024,8,8,1,optimizer,0,1,0\ngpt2,1024,8,8,1,,0,1,0\n"
              "gpt2,1024,8,8,1,everything,0,1,0\n");
  const Outcome made = run({"layout", "eval", "--table", table, "--gpu", "h100-sxm-80gb"});
  EXPECT_EQ(made.status, 0);
  EXPECT_THAT(made.out, HasSubstr(",host_memory_gb\n"));
  // Master weights and moments of 124 million parameters, gradients in blocks above 2 GB / 4.
  EXPECT_THAT(made.out, ::testing::ContainsRegex("1,optimizer,[^\n]*,[12]\\.[0-9]*\n"));
  EXPECT_THAT(made.out, ::testing::ContainsRegex("8,8,1,,[^\n]*,0\n"));
  EXPECT_THAT(made.out, HasSubstr("offload: expected one of none"));
}

TEST(LayoutOffloadCommand, SearchesWhatIsListed) {
  const Json json = json_of(layout("rank", {"--offload", "none,optimizer", "--zero", "1", "--tp",
                                            "1", "--pp", "1", "--host-gb-per-s", "100"}));
  EXPECT_EQ(json["layouts"][0]["offload"], "none");
  const auto offloads = [](const Json& one) { return one["offload"] == "optimizer"; };
  EXPECT_TRUE(std::ranges::any_of(json["layouts"], offloads));
}

TEST(LayoutOffloadCommand, RefusesContradictions) {
  expect_error(layout("eval", {"--offload", "everything"}), 1, "offload: expected one of none");
  expect_error(layout("eval", {"--offload", "optimizer+parameters"}), 1,
               "offload parameters: expected zero 3, fsdp or hsdp");
  expect_error(layout("eval", {"--offload", "optimizer", "--optimizer", "adamw-8bit"}), 1,
               "offload optimizer: expected adamw or sgd");
  expect_error(layout("eval", {"--fp8-activations"}), 1, "fp8_activations: expected precision fp8");
  expect_error(layout("eval", {"--host-memory", "2"}), 1,
               "host_memory: expected a number above 0 with GB, TB, GiB or TiB");
  expect_error(layout("export", {"--offload", "activations", "-o", scratch_file("offloaded")}), 1,
               "export: expected offload none");
}

}  // namespace layout_offload_test
}  // namespace perfmodel::test_support
