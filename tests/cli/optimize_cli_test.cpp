#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace optimize_cli_test {

using ::testing::HasSubstr;

std::string small_gpt() {
  static const std::string file =
      built("advice_gpt.json", {"gpt", "--layers", "2", "--hidden", "256", "--heads", "4",
                                "--sequence", "64", "--batch", "8", "--optimizer", "adamw"});
  return file;
}

std::string small_dlrm() {
  static const std::string file = built(
      "advice_dlrm.json", {"dlrm", "--preset", "ddp", "--batch", "256", "--no-table-batched"});
  return file;
}

// As a user pastes it, with the program under test in the place of the installed one.
Json document_of(std::string command) {
  const std::string name = "perfpredict ", program = "'" PERFPREDICT_PROGRAM "' ";
  for (std::size_t at = command.find(name); at != std::string::npos;
       at = command.find(name, at + program.size())) {
    command.replace(at, name.size(), program);
  }
  const fs::path out = scratch() / "pasted.json";
  command = "cd '" + scratch().string() + "' && { " + command + " --json; } >pasted.txt 2>&1 " +
            "&& tail -n +1 pasted.txt >'" + out.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string text = read(out);
  const auto begin = text.find("{\n");  // after the output of `rewrite`
  if (begin != std::string::npos) text.erase(0, begin);
  const Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text.substr(0, 400);
  return json.is_discarded() ? Json::object() : json;
}

double step_of_command(const std::string& command) {
  return document_of(command).value("e2e_us", 0.0);
}

Json advice(const Words& more) { return json_of(with({"optimize"}, more)); }

TEST(OptimizeCommand, HasTheKeysOfTheContract) {
  const Json json = advice({small_gpt(), "--gpu", "a100-sxm-40gb"});
  EXPECT_EQ(json["schema"], "perfmodel-optimize");
  EXPECT_GT(json["baseline_us"].get<double>(), json["best_us"].get<double>());
  EXPECT_GT(json["evaluations"].get<int>(), 10);
  ASSERT_FALSE(json["steps"].empty());
  for (const Json& step : json["steps"]) {
    for (const char* key :
         {"rewrite", "gain_us", "gain_share", "within_error", "command", "code"}) {
      EXPECT_TRUE(step.contains(key)) << key;
    }
  }
  ASSERT_FALSE(json["combination"].empty());
  ASSERT_FALSE(json["ceiling"].empty());
  double sum = json["ceiling_rest_us"].get<double>();
  for (const Json& row : json["ceiling"]) sum += row["gain_us"].get<double>();
  EXPECT_NEAR(sum, json["baseline_us"].get<double>(), 0.01 + 1e-6 * sum);
}

// Each command by hand gives what the advice says, to the nanosecond that documents have.
TEST(OptimizeCommand, ItsCommandsReproduceItsSteps) {
  for (const Words& asked :
       {Words{small_gpt(), "--gpu", "a100-pcie-40gb", "--world", "4", "--topology", "pcie"},
        Words{small_dlrm(), "--gpu", "t4", "--allow", "tables,optimizer,cuda-graphs,fusion"},
        Words{small_gpt(), "--gpu", "h100-sxm-80gb", "--objective", "samples-per-s"}}) {
    SCOPED_TRACE(shown(asked));
    const Json json = advice(asked);
    EXPECT_NEAR(step_of_command(json["baseline_command"]), json["baseline_us"].get<double>(), 2e-3);
    EXPECT_NEAR(step_of_command(json["best_command"]), json["best_step_us"].get<double>(), 2e-3);
    for (std::size_t i = 0; i < std::min<std::size_t>(json["steps"].size(), 3); ++i) {
      const Json& step = json["steps"][i];
      EXPECT_NEAR(step_of_command(step["command"]), step["step_us"].get<double>(), 2e-3)
          << step["command"];
    }
  }
}

// The answers of `layout` and `shard`, if several GPUs run the graph.
TEST(OptimizeCommand, SaysHowSeveralGpusShareTheModel) {
  const std::string opt =
      built("advice_opt.json", {"opt", "--layers", "2", "--hidden", "256", "--heads", "4",
                                "--sequence", "64", "--batch", "8"});
  const std::string cast = scratch_file("advice_cast.json");
  output_of({"rewrite", small_gpt(), "--precision", "bf16", "-o", cast});
  for (const std::string& graph : {small_gpt(), cast, opt}) {
    SCOPED_TRACE(graph);
    const Words asked = {graph,          "--gpu", "a100-sxm-40gb", "--world", "8",
                         "--scale-host", "1.5",   "--allow",       "layout"};
    const Json plan = advice(asked)["layout_plan"];
    ASSERT_TRUE(plan.is_object()) << plan;
    const Json layouts = document_of(plan["command"]);
    // No flag names an activation: OPT's is priced as GELU there.
    const double step_us = plan["step_us"], error = graph == opt ? 5e-3 * step_us : 2;
    EXPECT_NEAR(1000 * layouts["layouts"][0]["predicted_step_ms"].get<double>(), step_us, error);
    EXPECT_LE(plan["step_us"], plan["replicated_us"]);
    EXPECT_TRUE(plan["replicated_fits"].get<bool>());
    EXPECT_THAT(output_of(with({"optimize"}, asked)), HasSubstr(plan["layout"].get<std::string>()));
  }

  const Words tables = {built("advice_batched.json", {"dlrm", "--preset", "ddp", "--batch", "256"}),
                        "--gpu",
                        "a100-sxm-40gb",
                        "--world",
                        "8",
                        "--allow",
                        "sharding"};
  const Json sharded = advice(tables)["table_plan"];
  const Json plans = document_of(sharded["command"]);
  EXPECT_NEAR(sharded["plan_us"].get<double>(), plans["plans"][0]["predicted_us"].get<double>(),
              0.01 * sharded["plan_us"].get<double>());
  EXPECT_LT(sharded["plan_us"], sharded["replicated_us"]);
  const std::string text = output_of(with({"optimize"}, tables));
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("Plan of embedding tables\n  sharded"));
}

TEST(OptimizeCommand, PrintsItsTables) {
  const auto outcome = run({"optimize", small_dlrm(), "--gpu", "a100-sxm-40gb"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"times as fast", "what to do, in this order", "In PyTorch\n    # --", "each by itself",
        "Where it could go", "tried and lost", "perfpredict predict", "predictions in"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(OptimizeCommand, RefusesInOneLine) {
  const Words words = {"optimize", small_gpt(), "--gpu", "a100-sxm-40gb"};
  expect_error(with(words, {"--allow", "batch"}), 1, "objective step");
  expect_error(with(words, {"--memory-limit", "0.01"}), 1, "the least needs");
  expect_error(with(words, {"--allow", "magic"}), 1, "magic");
}

}  // namespace optimize_cli_test
}  // namespace perfmodel::test_support
