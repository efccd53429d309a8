// GPUs, hosts, networks and models that predictions of one program need.
#include "whatif/target_inputs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimize/answer_optimize.hpp"
#include "perfmodel/graph/build_model.hpp"

namespace perfmodel {
namespace target_inputs_test {

using testing::Contains;
using testing::HasSubstr;

// The program of a small step; models without files.
void fill(TargetInputs& inputs) {
  MlpConfig config;
  config.widths = {64, 64, 64};
  config.batch = 8;
  inputs.program.graph = build_mlp(config).value();
  inputs.chosen = choose_kernel_models("heuristic").value();
}

TEST(LoadTargets, LoadsEachGpuOnce) {
  TargetInputs inputs;
  fill(inputs);
  const auto loaded = load_targets({.gpu = "t4",
                                    .gpus = {"a100-sxm-40gb", "t4"},
                                    .models = "heuristic",
                                    .world = 4,
                                    .host_scale = 0.5},
                                   inputs);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  const auto targets = inputs.targets();
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[0].gpu.name, "t4");
  EXPECT_EQ(targets[1].gpu.name, "a100-sxm-40gb");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(targets[i].overheads, inputs.loaded[i].overheads.table.get());
    EXPECT_EQ(targets[i].options.models, &inputs.loaded[i].models);
    EXPECT_EQ(targets[i].options.world_size, 4);
    EXPECT_EQ(targets[i].options.host_scale, 0.5);
    EXPECT_FALSE(targets[i].options.kernel_times) << "a graph brings no times";
  }
}

TEST(LoadTargets, SaysThatHostsDiffer) {
  TargetInputs inputs;
  fill(inputs);
  const auto loaded =
      load_targets({.gpus = {"v100-sxm2-32gb", "a100-sxm-40gb"}, .overheads = "measured"}, inputs);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  EXPECT_THAT(inputs.warnings, Contains(HasSubstr("overheads of different machines")));
}

TEST(LoadTarget, RefusesUnknownNames) {
  const auto refusal = [](const TargetQuestion& question) {
    TargetInputs inputs;
    fill(inputs);
    const auto loaded = load_target(question, inputs);
    return loaded ? std::string() : loaded.error().message;
  };
  EXPECT_EQ(refusal({.gpu = "t4", .models = "heuristic"}), "");
  EXPECT_THAT(refusal({.gpu = "no-such-gpu", .models = "heuristic"}), HasSubstr("no-such-gpu"));
  EXPECT_THAT(refusal({.gpu = "t4", .models = "heuristic", .topology = "no-such-network"}),
              HasSubstr("no-such-network"));
}

TEST(LoadTarget, AMeasuredStepScalesTheHost) {
  TargetInputs inputs;
  fill(inputs);
  TargetQuestion question{.gpu = "t4", .models = "heuristic"};
  question.measured.us = 2000;  // longer than predicted
  const auto loaded = load_target(question, inputs);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  EXPECT_GT(inputs.target().options.host_scale, 1);
  EXPECT_THAT(inputs.warnings, Contains(HasSubstr("the measured step of 2.000 ms")));
}

TEST(ShellWord, QuotesAllButPlainCharacters) {
  EXPECT_EQ(shell_word("a/b-1.json"), "a/b-1.json");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

TEST(AnswerOptimize, CommandsNameTheMachine) {
  TargetInputs inputs;
  fill(inputs);
  OptimizeQuestion question{.graph = "my graph.json",
                            .target = {.gpu = "t4", .models = "heuristic", .host_scale = 2},
                            .options = {.allow = {"optimizer"}}};
  ASSERT_TRUE(load_target(question.target, inputs));
  const auto advice = answer_optimize(question, inputs);
  ASSERT_TRUE(advice) << to_string(advice.error());
  EXPECT_EQ(advice->baseline_command,
            "perfpredict predict 'my graph.json' --gpu t4 --models heuristic --scale-host 2");
  question.objective = "no-such-objective";
  EXPECT_FALSE(answer_optimize(question, inputs));
}

}  // namespace target_inputs_test
}  // namespace perfmodel
