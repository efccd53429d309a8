// Relations between the steps of random built models on random boards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "../scratch.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/timeline.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/replay.hpp"
#include "relations.hpp"

namespace perfmodel {
namespace steps_relations_test {

using relations::Random;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kRounding = 1e-9;

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load({.data = relations::data(), .gpus = relations::boards()}).value();
  return made;
}

struct Model {
  std::string family;
  PreparedGraph graph;
};

/// Each graph is built once: questions are many, models few.
const std::vector<Model>& models() {
  static const std::vector<Model> made = [] {
    std::vector<Model> models;
    for (const ModelRequest& request :
         {ModelRequest{.family = "bert", .batch = 4, .sequence = 128, .layers = 2},
          ModelRequest{.family = "gpt", .batch = 2, .sequence = 256, .layers = 2},
          ModelRequest{.family = "llama", .batch = 1, .sequence = 512, .layers = 1},
          ModelRequest{.family = "t5", .batch = 2, .sequence = 64, .layers = 1},
          ModelRequest{.family = "dlrm", .preset = "mlperf", .batch = 512},
          ModelRequest{.family = "mlp", .batch = 64},
          ModelRequest{.family = "resnet", .batch = 8, .optimizer = "momentum"}}) {
      auto graph = build_model(request);
      if (!graph) ADD_FAILURE() << request.family << ": " << to_string(graph.error());
      models.push_back({request.family, predictor().prepare(std::move(*graph)).value()});
    }
    return models;
  }();
  return made;
}

struct Asked {
  const Model* model = nullptr;
  std::string gpu;
  AskOptions options;
};

Asked asked(Random& random) {
  Asked made{.model = &random.of(models()), .gpu = random.of(relations::boards()), .options = {}};
  made.options.batch = *made.model->graph.batch() << random.below(4);
  made.options.launching =
      random.of(std::vector{Launching::kEager, Launching::kCudaGraphs, Launching::kCompiled});
  made.options.keep_ops = true;
  return made;
}

Prediction answer(const Asked& to) {
  auto answer = predictor().predict(to.model->graph, to.gpu, to.options);
  EXPECT_TRUE(answer) << to_string(answer.error());
  return answer ? std::move(*answer) : Prediction{};
}

std::string words(const Asked& asked) {
  return asked.model->family + " on " + asked.gpu + ", batch " +
         std::to_string(asked.options.batch) + ", launching " +
         std::to_string(static_cast<int>(asked.options.launching));
}

TEST(StepRelations, AStepHoldsItsPartsAndTheyAddUp) {
  Random random(66);
  for (std::size_t i = 0; i < 150 * relations::effort(); ++i) {
    const Asked question = asked(random);
    SCOPED_TRACE(words(question));
    const Prediction step = answer(question);
    double longest = 0, sum = 0;
    for (const PredictedOp& op : step.ops) {
      for (const PredictedKernel& kernel : op.kernels) {
        longest = std::max(longest, kernel.price.time.count());
        sum += kernel.price.time.count();
        EXPECT_LE(kernel.price.low, kernel.price.time);
        EXPECT_GE(kernel.price.high, kernel.price.time);
      }
    }
    EXPECT_GE(step.e2e_us * (1 + kRounding), step.gpu_active_us);
    EXPECT_GE(step.gpu_active_us * (1 + kRounding), longest);
    EXPECT_GE(step.kernel_sum_us * (1 + kRounding), step.gpu_active_us);
    EXPECT_NEAR(step.kernel_sum_us, sum, 1e-6 * sum);
    EXPECT_NEAR(step.kernel_sum_us, step.compute_kernel_us + step.comm_kernel_us, 1e-6 * sum);
    EXPECT_NEAR(step.e2e_us, step.gpu_active_us + step.gpu_idle_us, 1e-6 * step.e2e_us);
    EXPECT_LE(step.e2e_low_us, step.e2e_us);
    EXPECT_GE(step.e2e_high_us, step.e2e_us);
    const auto& purposes = step.memory.by_purpose;
    const double bytes = std::accumulate(purposes.begin(), purposes.end(), 0.0);
    EXPECT_NEAR(bytes, step.memory.needed_bytes(), 1);
    EXPECT_LE(step.memory.static_bytes(), step.memory.needed_bytes() * (1 + kRounding));
    const double limit_w = 1.002 * predictor().gpu(question.gpu)->tdp_w;
    if (step.power_w().value_or(0) > limit_w) {
      EXPECT_THAT(step.warnings, Contains(HasSubstr(" W of ")));
    }
  }
}

/// A change of a question that takes time, or none.
struct Addition {
  const char* words;
  std::function<void(AskOptions&)> make;
};

TEST(StepRelations, MoreWorkAndSlowerPartsAreNeverFaster) {
  const std::vector<Addition> additions = {
      {"twice the batch", [](AskOptions& to) { to.batch *= 2; }},
      {"a slower host", [](AskOptions& to) { to.host_scale = 1.3; }},
      {"slower kernels", [](AskOptions& to) { to.device_scale = 1.3; }},
      {"copies on two GPUs",
       [](AskOptions& to) {
         to.strategy = ParallelStrategy::kDdp;
         to.world = 2;
       }},
  };
  Random random(67);
  for (std::size_t i = 0; i < 400 * relations::effort(); ++i) {
    Asked question = asked(random);
    const Prediction less = answer(question);
    const Addition& addition = random.of(additions);
    addition.make(question.options);
    SCOPED_TRACE(words(question) + ", " + addition.words);
    const Prediction more = answer(question);
    EXPECT_GE(more.e2e_us * (1 + kRounding), less.e2e_us);
    EXPECT_GE(more.gpu_active_us * (1 + kRounding), less.gpu_active_us);
    EXPECT_GE(more.memory.peak_allocated_bytes, less.memory.peak_allocated_bytes);
  }
}

// Inside of a node more ranks may be faster: two V100 of a DGX-1 share fewer links than four.
TEST(StepRelations, MoreNodesAreNeverFasterAndOneGpuExchangesNothing) {
  Random random(68);
  for (std::size_t i = 0; i < 60 * relations::effort(); ++i) {
    Asked question = asked(random);
    question.options.strategy = ParallelStrategy::kDdp;
    question.options.world = 1;
    double before_us = answer(question).e2e_us;
    EXPECT_EQ(answer(question).comm_kernel_us, 0);
    for (const std::int64_t world : {8, 16, 32, 128, 1024}) {
      question.options.world = world;
      SCOPED_TRACE(words(question) + ", " + std::to_string(world) + " GPUs");
      const Prediction step = answer(question);
      EXPECT_GE(step.e2e_us * (1 + kRounding), before_us);
      before_us = step.e2e_us;
    }
  }
}

TEST(StepRelations, WhatIsWrittenIsReadAsItWas) {
  for (const auto& [family, prepared] : models()) {
    SCOPED_TRACE(family);
    const ExecutionGraph& graph = prepared.graph();
    const auto read = parse_execution_graph(execution_graph_json(graph));
    ASSERT_TRUE(read) << to_string(read.error());
    for (const std::string& gpu : relations::boards()) {
      const auto built = predictor().predict(graph, gpu, {.keep_ops = true});
      const auto again = predictor().predict(*read, gpu, {.keep_ops = true});
      EXPECT_EQ(built->e2e_us, again->e2e_us);
      EXPECT_EQ(built->gpu_active_us, again->gpu_active_us);
      EXPECT_EQ(built->memory.peak_reserved_bytes, again->memory.peak_reserved_bytes);
      EXPECT_EQ(built->ops.size(), again->ops.size());
    }
  }
}

TEST(StepRelations, ATimelineReplaysToItsPrediction) {
  const OverheadTable host =
      read_overheads(relations::data() / "overheads" / "reference.json").value();
  const auto file = test_support::scratch() / "relations.json";
  Random random(69);
  for (std::size_t i = 0; i < 40 * relations::effort(); ++i) {
    const Asked question = asked(random);
    SCOPED_TRACE(words(question));
    PredictOptions options;
    options.keep_calls = true;
    options.launching = question.options.launching;
    const auto step =
        predict(question.model->graph.graph(), *predictor().gpu(question.gpu), host, options);
    ASSERT_TRUE(step) << to_string(step.error());
    const auto written = write_timeline(*step, {.graph = "graph", .gpu = question.gpu}, file);
    ASSERT_TRUE(written) << to_string(written.error());
    const auto trace = read_trace(file);
    ASSERT_TRUE(trace) << to_string(trace.error());
    const auto replayed = replay(std::span(&*trace, 1));
    ASSERT_TRUE(replayed) << to_string(replayed.error());
    const Replay::Iteration& again = replayed->ranks[0].iterations.back();
    // The last launch of a graph, or a call's end, may be drawn beyond the step.
    EXPECT_NEAR(again.unscaled_us, step->e2e_us, 3 + 1e-3 * step->e2e_us);
  }
}

}  // namespace steps_relations_test
}  // namespace perfmodel
