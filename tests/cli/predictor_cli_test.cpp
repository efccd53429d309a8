// The command and the library's front door say the same, to the last digit that is printed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/predictor.hpp"
#include "program.hpp"

namespace perfmodel::test_support {
namespace predictor_cli_test {

// Times are printed in whole nanoseconds.
double printed(double us) { return std::round(us * 1000) / 1000; }

struct Case {
  Words build, rewrite, flags;
  std::string gpu;
  AskOptions options;
};

TEST(PredictorAndCommand, AgreeToThePrintedDigit) {
  const Case cases[] = {
      {.build = {"dlrm", "--preset", "mlperf"}, .gpu = "h100-sxm-80gb"},
      {.build = {"dlrm", "--preset", "mlperf"},
       .rewrite = {"--batch", "777"},
       .gpu = "t4",
       .options = {.batch = 777}},
      {.build = {"dlrm", "--preset", "ddp"},
       .flags = {"--world", "16", "--strategy", "ddp", "--topology", "dgx-a100", "--interference",
                 "1.5"},
       .gpu = "a100-sxm-40gb",
       .options = {.world = 16,
                   .topology = "dgx-a100",
                   .strategy = ParallelStrategy::kDdp,
                   .interference = 1.5}},
      {.build = {"gpt", "--preset", "gpt2", "--layers", "2", "--batch", "2"},
       .rewrite = {"--sequence", "256"},
       .flags = {"--world", "8", "--strategy", "fsdp"},
       .gpu = "mi250",
       .options = {.sequence = 256, .world = 8, .strategy = ParallelStrategy::kFsdp}},
  };
  const auto predictor =
      Predictor::load({.data = fs::path(PERFMODEL_SOURCE_DIR) / "data",
                       .gpus = {"h100-sxm-80gb", "t4", "a100-sxm-40gb", "mi250"}});
  ASSERT_TRUE(predictor);
  const std::string built = scratch_file("built.json");
  const std::string changed = scratch_file("changed.json");
  for (const Case& one : cases) {
    Words build = {"build"};
    build.insert(build.end(), one.build.begin(), one.build.end());
    build.insert(build.end(), {"-o", built});
    ASSERT_EQ(run(build).status, 0);
    std::string asked = built;
    if (!one.rewrite.empty()) {
      Words rewrite = {"rewrite", built, "-o", changed};
      rewrite.insert(rewrite.end(), one.rewrite.begin(), one.rewrite.end());
      ASSERT_EQ(run(rewrite).status, 0);
      asked = changed;
    }
    Words words = {"predict", asked, "--gpu", one.gpu, "--json"};
    words.insert(words.end(), one.flags.begin(), one.flags.end());
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json said = Json::parse(outcome.out);

    const auto graph = predictor->prepare(read_execution_graph(built).value()).value();
    const auto answer = predictor->predict(graph, one.gpu, one.options);
    ASSERT_TRUE(answer) << to_string(answer.error());
    EXPECT_EQ(said["e2e_us"].get<double>(), printed(answer->e2e_us)) << shown(words);
    EXPECT_EQ(said["gpu_active_us"].get<double>(), printed(answer->gpu_active_us));
    EXPECT_EQ(said["cpu_us"].get<double>(), printed(answer->cpu_us));
    EXPECT_EQ(said["wait_us"].get<double>(), printed(answer->wait_us));
    EXPECT_EQ(said["kernel_sum_us"].get<double>(), printed(answer->kernel_sum_us));
    EXPECT_EQ(said["comm_kernel_us"].get<double>(), printed(answer->comm_kernel_us));
    const auto warnings = said["warnings"].get<std::vector<std::string>>();
    for (const std::string& warning : answer->warnings) {
      EXPECT_THAT(warnings, ::testing::Contains(::testing::HasSubstr(warning)));
    }
  }
}

}  // namespace predictor_cli_test
}  // namespace perfmodel::test_support
