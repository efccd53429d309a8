// Questions whose graphs are rewritten first: the answers are those about the rewritten graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "../scratch.hpp"
#include "analyze/analyzed_inputs.hpp"
#include "memory/memory_answer.hpp"
#include "memory/memory_results.hpp"
#include "optimize/answer_optimize.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "predict/prediction_json.hpp"
#include "predict/report_prediction.hpp"
#include "rewrites/rewrite_input.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel {
namespace rewritten_question_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Rewrites = std::vector<NamedRewrite>;

constexpr const char* kGpu = "a100-sxm-80gb";

Rewrites rewrites_of(const std::vector<std::pair<std::string, std::string>>& flags) {
  Rewrites rewrites;
  for (const auto& [flag, value] : flags) {
    rewrites.push_back(named_rewrite(*find_rewrite_option(flag), value).value());
  }
  return rewrites;
}

ExecutionGraph small_gpt() {
  GptConfig config;
  config.layers = 2;
  config.hidden = 64;
  config.heads = 2;
  config.feed_forward = 256;
  config.positions = 16;
  config.vocabulary = 128;
  config.batch = 4;
  config.sequence = 16;
  return build_gpt(config).value();
}

ExecutionGraph small_mlp() {
  MlpConfig config;
  config.widths = {256, 256, 256};
  config.batch = 64;
  return build_mlp(config).value();
}

QuestionReaders reader_of(std::vector<ExecutionGraph> graphs) {
  return {.programs = [graphs](const auto&) -> Result<std::vector<RecordedProgram>> {
            std::vector<RecordedProgram> programs;
            for (const ExecutionGraph& graph : graphs) programs.push_back({graph, nullptr});
            return programs;
          },
          .trace = [](const std::string&) -> Result<Trace> {
            return fail(ErrorCode::kIo, "expected no trace, found a question for one");
          }};
}

PredictionQuestion question_of(std::vector<std::string> files, Rewrites rewrites = {}) {
  PredictionQuestion question;
  question.graphs = std::move(files);
  question.gpu = kGpu;
  question.rewrites = std::move(rewrites);
  return question;
}

/// The graph as `rewrite` writes it and `predict` reads it.
ExecutionGraph through_a_file(const ExecutionGraph& graph, const Rewrites& rewrites) {
  const std::string file = test_support::scratch_file("rewritten.json");
  const auto made = apply_rewrites(graph, rewrites).value();
  EXPECT_TRUE(write_execution_graph(made, file, {.generator = "test"}));
  return read_execution_graph(file).value();
}

// Members of two answers in which they differ, except what they say of their inputs.
std::vector<std::string> differences(const OrderedJson& one, const OrderedJson& other) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : other.items()) {
    if (key == "provenance") continue;
    OrderedJson mine = one.at(key);
    if (key == "warnings") {
      mine = OrderedJson::array();
      for (const OrderedJson& warning : one.at(key)) {
        if (!warning.get<std::string>().ends_with(" changes nothing")) mine.push_back(warning);
      }
    }
    if (mine != value) keys.push_back(key);
  }
  return keys;
}

const std::vector<Rewrites>& cases() {
  static const std::vector<Rewrites> all = {
      rewrites_of({{"batch", "8"}}), rewrites_of({{"precision", "bf16"}, {"optimizer", "fused"}}),
      rewrites_of({{"checkpoint", "1"}, {"accumulate", "2"}, {"data-parallel", "4"}}),
      rewrites_of({{"fuse-elementwise", ""}}), rewrites_of({{"scale-kernel", "aten::*=0.5"}})};
  return all;
}

TEST(RewrittenQuestion, IsPredictedAsTheGraphThatRewriteWrites) {
  for (const ExecutionGraph& graph : {small_gpt(), small_mlp()}) {
    for (const Rewrites& rewrites : cases()) {
      SCOPED_TRACE(rewrite_line(rewrites));
      const auto applied = apply_rewrites(graph, rewrites);
      const auto one = report_prediction(question_of({"g.json"}, rewrites), reader_of({graph}));
      if (!applied) {
        ASSERT_FALSE(one);
        EXPECT_THAT(one.error().message, applied.error().message);
        continue;
      }
      ASSERT_TRUE(one) << to_string(one.error());
      const auto two =
          report_prediction(question_of({"g.json"}), reader_of({through_a_file(graph, rewrites)}));
      ASSERT_TRUE(two) << to_string(two.error());
      EXPECT_THAT(differences(prediction_json(*one), prediction_json(*two)), IsEmpty());
      EXPECT_EQ(prediction_json(*one)["rewrites"], rewrite_names(rewrites));
      EXPECT_FALSE(prediction_json(*two).contains("rewrites"));
    }
  }
}

TEST(RewrittenQuestion, WritesTheChakraTraceOfTheGraphThatRewriteWrites) {
  const Rewrites rewrites = rewrites_of({{"precision", "bf16"}, {"compile", "default"}});
  const auto text_of = [](PredictionQuestion question, const ExecutionGraph& graph) {
    question.keep_chakra = true;
    const auto report = report_prediction(question, reader_of({graph}));
    EXPECT_TRUE(report) << to_string(report.error());
    const std::string file = test_support::scratch_file("step.et");
    EXPECT_TRUE(write_chakra(report->chakra.at(0), file));
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string one = text_of(question_of({"g.json"}, rewrites), small_gpt());
  const std::string two = text_of(question_of({"g.json"}), through_a_file(small_gpt(), rewrites));
  EXPECT_TRUE(one == two);
  EXPECT_THAT(one, HasSubstr("CompiledFunction"));
}

TEST(RewrittenQuestion, RewritesEveryRankAndNamesTheOneThatRefuses) {
  const Rewrites half = rewrites_of({{"precision", "bf16"}});
  ExecutionGraph plain = small_mlp(), mixed = apply_rewrites(plain, half).value();
  plain.source = "rank0.json";
  mixed.source = "rank1.json";
  const auto both =
      report_prediction(question_of({"rank0.json", "rank1.json"}, half), reader_of({plain, plain}));
  ASSERT_TRUE(both) << to_string(both.error());
  EXPECT_EQ(both->ranks[0].graph.nodes.size(), both->ranks[1].graph.nodes.size());
  EXPECT_GT(both->ranks[0].graph.nodes.size(), plain.nodes.size());
  const auto refused =
      report_prediction(question_of({"rank0.json", "rank1.json"}, half), reader_of({plain, mixed}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("rank1.json: --precision bf16: "));
}

TEST(RewrittenQuestion, RewritesGraphsOfUnlikeRanks) {
  PredictionQuestion question = question_of({"mlp.json"}, rewrites_of({{"batch", "128"}}));
  question.gpu = "h100-sxm-80gb,a100-sxm-80gb";
  question.strategy = ParallelStrategy::kDdp;
  const auto report = report_prediction(question, reader_of({small_mlp()}));
  ASSERT_TRUE(report) << to_string(report.error());
  for (const RankPrediction& rank : report->ranks) EXPECT_EQ(rank.prediction.batch, 128);
}

TEST(RewrittenQuestion, SaysThatARewriteChangesNothing) {
  const auto fused = rewrites_of({{"fuse-elementwise", ""}, {"fuse-elementwise", ""}});
  const auto report = report_prediction(question_of({"g.json"}, fused), reader_of({small_gpt()}));
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_THAT(report->warnings, Contains("--fuse-elementwise changes nothing"));
}

TEST(RewrittenQuestion, ChangesThatNoSizeShowsAreChanges) {
  const auto warnings_of = [](const ExecutionGraph& graph, const char* flag, const char* value) {
    return rewrite_input(graph, rewrites_of({{flag, value}})).value().warnings;
  };
  EXPECT_THAT(warnings_of(small_mlp(), "precision", "tf32"), Not(Contains(HasSubstr("nothing"))));
  EXPECT_THAT(warnings_of(build_resnet({.batch = 2}).value(), "channels-last", ""),
              Not(Contains(HasSubstr("nothing"))));
}

TEST(RewrittenQuestion, AMeasuredStepIsThatOfTheGraphAsItIs) {
  const auto plain = report_prediction(question_of({"g.json"}), reader_of({small_gpt()}));
  PredictionQuestion question = question_of({"g.json"}, rewrites_of({{"optimizer", "fused"}}));
  question.measured.us = 2 * plain->mean_e2e_us();
  const auto report = report_prediction(question, reader_of({small_gpt()}));
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_NEAR(report->ranks[0].measured->scales.host, 2, 0.1);
  EXPECT_LT(report->mean_e2e_us(), *question.measured.us);
}

TEST(RewrittenQuestion, TargetsAndMemoryAreOfTheRewrittenGraph) {
  const Rewrites more = rewrites_of({{"batch", "128"}});
  TargetInputs inputs;
  inputs.program.graph = small_mlp();
  OptimizeQuestion asked{.graph = "mlp.json"};
  asked.target = {.gpu = kGpu, .rewrites = more};
  ASSERT_TRUE(load_target(asked.target, inputs));
  EXPECT_EQ(batch_size(inputs.program.graph).value(), 128);
  const auto advice = answer_optimize(asked, inputs);
  ASSERT_TRUE(advice) << to_string(advice.error());
  for (const AdvisedStep& step : advice->steps) {
    EXPECT_THAT(step.command, HasSubstr("mlp.json --batch 128"));
  }
  const auto held = answer_memory({.graph = "mlp.json", .rewrites = more}, small_mlp(), {}, {});
  ASSERT_TRUE(held) << to_string(held.error());
  EXPECT_EQ(memory_json(*held)["batch"], 128);
  EXPECT_EQ(memory_json(*held)["rewrites"], rewrite_names(more));
}

TEST(RewrittenQuestion, AttentionThatTheGpuLacksIsTheFirstWarningOfMemoryToo) {
  const Rewrites flash = rewrites_of({{"precision", "fp16"}, {"attention", "flash"}});
  const auto first_warning = [&](const char* name) {
    const Gpu gpu = find_gpu(name, find_data_folder().value() / "gpus").value();
    const auto held = answer_memory({.graph = "g.json", .rewrites = flash}, small_gpt(), gpu, {});
    EXPECT_TRUE(held) << to_string(held.error());
    return held->warnings.empty() ? std::string() : held->warnings.front();
  };
  EXPECT_EQ(first_warning("v100-sxm2-16gb"),
            "flash attention needs sm_80 or later, v100-sxm2-16gb is sm_70: 4 calls could not run "
            "there");
  EXPECT_THAT(first_warning(kGpu), Not(HasSubstr("flash attention needs")));
}

// It brings its host and the times of kernels that have no model.
RecordedProgram recorded_dlrm() {
  return read_recorded_program(find_data_folder().value() / "measurements" / "h100-sxm-80gb" /
                               "dlrm-default-b512.kineto.json.gz")
      .value();
}

TEST(RewrittenQuestion, OfATraceIsAnsweredAsWhatIfAnswers) {
  const RecordedProgram program = recorded_dlrm();
  for (const char* gpu : {kGpu, "h100-sxm-80gb"}) {
    for (const auto& [flag, value] :
         {std::pair("batch", "256"), std::pair("remove", "aten::add_")}) {
      SCOPED_TRACE(std::string(gpu) + " " + flag);
      const Rewrites rewrites = rewrites_of({{flag, value}});
      PredictionQuestion question = question_of({"t.json"}, rewrites);
      question.gpu = gpu;
      const auto report = report_prediction(
          question, {.programs = [&](const auto&) -> Result<std::vector<RecordedProgram>> {
                       return std::vector{program};
                     },
                     .trace = {}});
      ASSERT_TRUE(report) << to_string(report.error());
      EXPECT_FALSE(report->ranks[0].recorded_us) << "it is the step before the rewrites";
      TargetInputs inputs;
      inputs.program = program;
      ASSERT_TRUE(load_target({.gpu = gpu}, inputs));
      const Variant variant{.name = "", .rewrites = rewrites};
      const WhatIfTarget target = inputs.target();
      const auto answers = what_if(program.graph, {&variant, 1}, {&target, 1});
      ASSERT_FALSE(answers[0].error) << to_string(*answers[0].error);
      EXPECT_DOUBLE_EQ(report->mean_e2e_us(), answers[0].e2e_us);
    }
  }
}

TEST(RewrittenQuestion, ATraceIsRewrittenOnlyWhereItIsPredicted) {
  AnalyzeQuestion question{.files = {"t.json"}};
  question.target.rewrites = rewrites_of({{"batch", "256"}});
  const auto recorded = load_analyzed(question, {recorded_dlrm()});
  ASSERT_FALSE(recorded);
  EXPECT_THAT(to_string(recorded.error()),
              HasSubstr("t.json: expected a graph, or --gpu of another GPU, for --batch 256"));
  question.target.gpu = kGpu;
  const auto predicted = load_analyzed(question, {recorded_dlrm()});
  ASSERT_TRUE(predicted) << to_string(predicted.error());
  EXPECT_EQ(batch_size(predicted->ranks[0]->program.graph).value(), 256);
  question.target.rewrites = rewrites_of({{"precision", "bf16"}});
  const auto refused = load_analyzed(question, {recorded_dlrm()});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--precision"));
}

}  // namespace rewritten_question_test
}  // namespace perfmodel
