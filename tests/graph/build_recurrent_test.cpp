// Recurrent models: op by op against what PyTorch 1.13 recorded of the same small models on a CPU
// (counted here, see docs/builders.md), closed forms, launches per cell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/graph/build_deepspeech2.hpp"
#include "perfmodel/graph/build_lstm.hpp"
#include "perfmodel/graph/build_seq2seq.hpp"
#include "perfmodel/graph/model_size.hpp"

namespace perfmodel {
namespace {

using testing::ElementsAreArray;
using Names = std::vector<std::string>;

TrainingOptions on_cpu() {
  TrainingOptions training;
  training.pytorch = {.major = 1, .minor = 13, .device = {.kind = Device::Kind::kCpu}};
  training.pytorch.mkl = false;
  training.step_label.clear();
  return training;
}

// 11 words of width 5, layers of 4, 3 steps, batch 2.
LstmConfig small_lstm(RecurrentCell cell, RecurrentForm form, std::int64_t layers = 1) {
  LstmConfig config;
  config.cell = cell;
  config.form = form;
  config.vocabulary = 11;
  config.embedding = 5;
  config.hidden = 4;
  config.layers = layers;
  config.dropout = layers > 1 ? 0.3 : 0;
  config.batch = 2;
  config.steps = 3;
  return config;
}

Seq2seqConfig small_seq2seq() {
  Seq2seqConfig config;
  config.source_vocabulary = 11;
  config.target_vocabulary = 7;
  config.embedding = 5;
  config.hidden = 4;
  config.attention = 6;
  config.batch = 2;
  config.source_steps = 3;
  config.target_steps = 4;
  return config;
}

Deepspeech2Config small_deepspeech2() {
  Deepspeech2Config config;
  config.frequencies = 12;
  config.convolutions = {{.channels = 2,
                          .frequency_kernel = 5,
                          .time_kernel = 3,
                          .frequency_stride = 2,
                          .time_stride = 2,
                          .frequency_padding = 2,
                          .time_padding = 1},
                         {.channels = 2,
                          .frequency_kernel = 3,
                          .time_kernel = 3,
                          .frequency_stride = 2,
                          .time_stride = 1,
                          .frequency_padding = 1,
                          .time_padding = 1}};
  config.layers = 2;
  config.hidden = 4;
  config.characters = 5;
  config.batch = 2;
  config.frames = 8;
  config.target_steps = 2;
  return config;
}

template <class Config>
Config with_training(Config config, const TrainingOptions& training) {
  config.training = training;
  return config;
}

ExecutionGraph built(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph build(const LstmConfig& config) { return built(build_lstm(config)); }
ExecutionGraph build(const Seq2seqConfig& config) { return built(build_seq2seq(config)); }
ExecutionGraph build(const Deepspeech2Config& config) { return built(build_deepspeech2(config)); }

std::vector<const Node*> named(const ExecutionGraph& graph, std::string_view name) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == name) found.push_back(&node);
  }
  return found;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return named(graph, name).size();
}

Names children(const ExecutionGraph& graph, const Node& node) {
  Names names;
  for (std::int32_t child : graph.children(node)) {
    names.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
  }
  return names;
}

Names children(const ExecutionGraph& graph, std::string_view name) {
  const auto nodes = named(graph, name);
  return nodes.empty() ? Names{} : children(graph, *nodes.front());
}

Names backward_functions(const ExecutionGraph& graph) {
  Names names;
  for (const Node& node : graph.nodes) {
    if (node.scope == Scope::kBackward) names.emplace_back(graph.name(node));
  }
  return names;
}

Names repeat(Names names, const Names& part, int times) {
  for (int i = 0; i < times; ++i) names.insert(names.end(), part.begin(), part.end());
  return names;
}

Names operator+(Names names, const Names& more) { return repeat(std::move(names), more, 1); }

// What PyTorch 1.13 recorded inside of nn.LSTM and nn.GRU with 3 steps.

const Names kLstmStep = {"aten::linear",   "aten::add_", "aten::unsafe_chunk", "aten::sigmoid_",
                         "aten::sigmoid_", "aten::tanh_", "aten::sigmoid_",    "aten::mul",
                         "aten::mul",      "aten::add_",  "aten::tanh",        "aten::mul"};

TEST(RecurrentOnCpu, LstmIsALoopOverSteps) {
  const auto config = with_training(
      small_lstm(RecurrentCell::kLstm, RecurrentForm::kLibrary), on_cpu());
  const ExecutionGraph graph = build(config);
  const Names expected =
      repeat({"aten::cudnn_is_acceptable", "aten::unbind", "aten::unbind", "aten::linear",
              "aten::unbind"},
             kLstmStep, 3) +
      Names{"aten::stack", "aten::stack", "aten::stack"};
  EXPECT_THAT(children(graph, "aten::lstm"), ElementsAreArray(expected));
}

TEST(RecurrentOnCpu, GruKeepsCopiesOfWhatItMultipliesInPlace) {
  const auto config =
      with_training(small_lstm(RecurrentCell::kGru, RecurrentForm::kLibrary), on_cpu());
  const ExecutionGraph graph = build(config);
  const Names step = {"aten::unsafe_chunk", "aten::linear", "aten::unsafe_chunk", "aten::add_",
                      "aten::sigmoid_",     "aten::add_",   "aten::sigmoid_",     "aten::mul_",
                      "aten::add",          "aten::tanh_",  "aten::sub",          "aten::mul_",
                      "aten::add_"};
  const Names expected = repeat({"aten::cudnn_is_acceptable", "aten::unbind", "aten::linear",
                                 "aten::unbind"},
                                step, 3) +
                         Names{"aten::stack", "aten::stack"};
  EXPECT_THAT(children(graph, "aten::gru"), ElementsAreArray(expected));
  EXPECT_THAT(children(graph, "aten::mul_"), ElementsAreArray({"aten::clone"}));
}

}  // namespace
}  // namespace perfmodel
