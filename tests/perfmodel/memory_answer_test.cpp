// Answers of `memory` about a step, without its command.
#include "memory/memory_answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "memory/memory_of_trace.hpp"
#include "memory/memory_results.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"

namespace perfmodel {
namespace memory_answer_test {

using testing::HasSubstr;
using testing::SizeIs;

ExecutionGraph mlp_of(std::int64_t batch) {
  MlpConfig config;
  config.widths = {4096, 4096, 4096};
  config.batch = batch;
  return build_mlp(config).value();
}

Result<NamedRewrite> no_rewrite(const std::string&, const std::string&) {
  return fail(ErrorCode::kUnknownName, "expected no rewrite, found one");
}

TEST(MemoryAnswer, CountsAStepWithoutAGpu) {
  const auto answer =
      answer_memory({.graph = "a/b/mlp.json"}, mlp_of(64), std::nullopt, no_rewrite);
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->graph_file, "mlp.json");
  EXPECT_EQ(answer->batch, 64);
  EXPECT_GT(answer->report.memory.peak_allocated_bytes, 4.0 * 2 * 4096 * 4096);
  EXPECT_FALSE(answer->ways);
}

TEST(MemoryAnswer, TriesToFitAStepThatIsTooLarge) {
  // 2^22 rows of 4096 numbers: 64 GiB per activation.
  const Gpu t4 = find_gpu("t4", find_data_folder().value() / "gpus").value();
  const auto answer = answer_memory({.graph = "mlp.json"}, mlp_of(1 << 22), t4, no_rewrite);
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_FALSE(answer->report.memory.fits());
  ASSERT_TRUE(answer->ways);
  EXPECT_EQ(answer->ways->tried, 1) << "FSDP alone needs no rewrite";
}

TEST(MemoryAnswer, RewritesOnlyForWaysThatMayFit) {
  const Gpu t4 = find_gpu("t4", find_data_folder().value() / "gpus").value();
  std::map<std::string, std::atomic<int>> asked;
  const auto rewrite = [&](const std::string& name, const std::string& value) {
    const auto change = [&asked, name](const ExecutionGraph& graph) -> Result<ExecutionGraph> {
      ++asked[name];
      return name == "precision" ? mlp_of(64) : graph;
    };
    asked[name] = 0;  // before threads look it up
    return Result<NamedRewrite>(NamedRewrite{"--" + name + " " + value, change});
  };
  const auto answer = answer_memory({.graph = "mlp.json"}, mlp_of(1 << 22), t4, rewrite);
  ASSERT_TRUE(answer) << to_string(answer.error());
  ASSERT_TRUE(answer->ways);
  EXPECT_EQ(answer->ways->tried, 21) << "with a smaller batch and FSDP";
  EXPECT_GT(asked["precision"], 0);
  EXPECT_GT(asked["fuse-loss"], 0) << "it may fit: more of it does";
  EXPECT_EQ(asked["optimizer"], 0) << "activations stay, which are too much";
  EXPECT_EQ(asked["grad-dtype"], 0);
  for (const WayToFit& way : answer->ways->fitting) {
    EXPECT_THAT(way.how, testing::StartsWith("--precision"));
    EXPECT_GT(way.slowdown, 0);
  }
  EXPECT_THAT(answer->ways->fitting, SizeIs(7));
}

// Few layers bound what a way needs. One that refuses them may take the whole step: activations of
// few layers are not worth an offload.
TEST(MemoryAnswer, AsksAWayThatFewLayersRefuse) {
  GptConfig config = gpt_preset("gpt2").value();
  config.batch = 128;
  config.sequence = 256;
  const ExecutionGraph whole = build_gpt(config).value();
  std::atomic<int> refused = 0, taken = 0;
  const auto rewrite = [&](const std::string& name, const std::string& value) {
    const auto change = [&, name](const ExecutionGraph& graph) -> Result<ExecutionGraph> {
      if (name != "offload-activations") return graph;
      if (graph.nodes.size() == whole.nodes.size()) {
        ++taken;
        return mlp_of(64);
      }
      ++refused;
      return fail(ErrorCode::kImpossible, "expected more layers");
    };
    return Result<NamedRewrite>(NamedRewrite{"--" + name + " " + value, change});
  };
  const Gpu t4 = find_gpu("t4", find_data_folder().value() / "gpus").value();
  const auto answer = answer_memory({.graph = "gpt.json"}, whole, t4, rewrite);
  ASSERT_TRUE(answer) << to_string(answer.error());
  ASSERT_TRUE(answer->ways);
  EXPECT_EQ(refused, 2) << "alone and after autocast, by three layers";
  EXPECT_EQ(taken, 2) << "the same";
  EXPECT_THAT(answer->ways->fitting, SizeIs(2));
}

TEST(MemoryOfTrace, KnowsNothingWithoutRecords) {
  const MemoryOfTrace memory = memory_of_trace(Trace(), std::nullopt);
  EXPECT_FALSE(memory.measured());
  EXPECT_FALSE(memory.fits());
  ASSERT_THAT(memory.warnings, SizeIs(1));
  EXPECT_THAT(memory.warnings[0], HasSubstr("profile_memory=True"));
}

TEST(MemoryOfTrace, HasNoAnswerThatNeedsTensors) {
  RecordedProgram program{mlp_of(64), std::make_shared<Trace>()};
  program.graph.schema = "kineto";
  EXPECT_TRUE(memory_of_trace({.graph = "trace.json"}, program, std::nullopt));
  const auto answer =
      memory_of_trace({.graph = "trace.json", .max_batch = true}, program, std::nullopt);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("for --max-batch, found a trace"));
}

TEST(MemoryResults, WithoutAGpuNothingSaysWhetherTheStepFits) {
  const auto answer =
      answer_memory({.graph = "a/b/mlp.json"}, mlp_of(64), std::nullopt, no_rewrite);
  ASSERT_TRUE(answer) << to_string(answer.error());
  const OrderedJson json = memory_json(*answer);
  EXPECT_EQ(json.begin().key(), "graph");
  EXPECT_EQ(json["batch"], 64);
  EXPECT_TRUE(json["fits"].is_null());
  EXPECT_TRUE(json["gpu"].is_null());
  EXPECT_GT(json["needed_bytes"], 0);
  EXPECT_EQ(json["own_peaks"].size(), json["by_purpose"].size());
}

TEST(MemoryResults, ATraceWithoutRecordsHasNoPeak) {
  const OrderedJson json = memory_json(memory_of_trace(Trace(), std::nullopt));
  EXPECT_EQ(json["measured"], false);
  EXPECT_TRUE(json["peak_allocated_bytes"].is_null());
  EXPECT_TRUE(json["needed_bytes"].is_null());
}

}  // namespace memory_answer_test
}  // namespace perfmodel
