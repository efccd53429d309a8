// Layers of a step, and inputs and outputs of parts of its forward pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "step/layers.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace step_layers_test {

using testing::HasSubstr;

ExecutionGraph small_gpt(std::int64_t layers) {
  GptConfig config = gpt_preset("gpt2").value();
  config.batch = 2;
  config.sequence = config.positions = 32;
  config.layers = layers;
  config.hidden = 64;
  config.heads = 4;
  config.feed_forward = 128;
  config.vocabulary = 100;
  return build_gpt(config).value();
}

// By text: a letter is an op, an upper-case letter multiplies.
std::vector<OpSignature> ops(const std::string& text) {
  std::vector<OpSignature> signatures;
  for (const char letter : text) {
    signatures.push_back(
        {.hash = static_cast<std::uint64_t>(letter), .multiplies = letter >= 'A' && letter <= 'Z'});
  }
  return signatures;
}

TEST(Repetitions, AreStretchesWithAProductInEachPeriod) {
  const auto found = repetitions(ops("eAbAbAbcxyDzDzt"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].begin, 1u);
  EXPECT_EQ(found[0].length, 6u);
  EXPECT_EQ(found[0].period, 2u);
  EXPECT_EQ(found[1].begin, 10u);
  EXPECT_EQ(found[1].length, 4u);
  EXPECT_TRUE(repetitions(ops("abababab")).empty()) << "no product";
  EXPECT_TRUE(repetitions(ops("ABCDE")).empty()) << "nothing repeats";
}

TEST(Layers, AreThoseOfTheModel) {
  const ExecutionGraph graph = small_gpt(3);
  const StepView step(graph);
  const SegmentReader reader(step);
  const auto stacks = layers(step, reader);
  ASSERT_TRUE(stacks);
  ASSERT_EQ(stacks->size(), 1u);
  ASSERT_EQ(stacks->front().size(), 3u);
  for (std::size_t k = 1; k < 3; ++k) {
    const auto before = reader.read(stacks->front()[k - 1]),
               layer = reader.read(stacks->front()[k]);
    ASSERT_TRUE(before && layer);
    ASSERT_EQ(layer->inputs.size(), 1u);
    EXPECT_EQ(graph.tensors[layer->inputs[0]].id, graph.tensors[before->output].id);
    EXPECT_EQ(layer->begin, before->end);
    EXPECT_EQ(layer->first, before->behind);
    EXPECT_EQ(layer->functions_end, before->functions_begin) << "backwards";
    ASSERT_EQ(layer->gradients.size(), 1u);
    EXPECT_EQ(layer->gradients[0].edges.size(), 2u) << "of the residual and of the norm";
  }
}

TEST(Layers, FailWhereNothingRepeats) {
  const ExecutionGraph graph = small_gpt(1);
  const StepView step(graph);
  const auto stacks = layers(step, SegmentReader(step));
  ASSERT_FALSE(stacks);
  EXPECT_THAT(stacks.error().message, HasSubstr("expected layers that"));
}

TEST(Segments, SayWhyAPartIsNone) {
  const ExecutionGraph graph = small_gpt(2);
  const StepView step(graph);
  std::int32_t embedding = 0;
  while (graph.name(embedding) != "aten::embedding") ++embedding;
  const auto part = SegmentReader(step).read({embedding});
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message, HasSubstr("expected an input with a gradient for the segment "
                                              "that begins with aten::embedding"));
}

TEST(BackwardPass, KnowsItsFunctionsByNumberAndTheirGradients) {
  const ExecutionGraph graph = build_mlp(mlp_preset("mnist").value()).value();
  const StepView step(graph);
  const BackwardPass& pass = step.backward();
  EXPECT_FALSE(pass.in_backward[forward_end(pass) - 1]);
  EXPECT_TRUE(pass.in_backward[forward_end(pass)]);
  const auto functions = functions_by_sequence(pass);
  std::size_t edges = 0;
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(pass.functions.size()); ++f) {
    for (const GradientEdge& edge : edges_to(pass, f)) EXPECT_EQ(edge.to, f);
    edges += edges_to(pass, f).size();
    const BackwardFunction& function = pass.functions[f];
    if (function.accumulates()) continue;
    EXPECT_EQ(functions.at(function.sequence), f);
  }
  EXPECT_EQ(edges, pass.edges.size());
}

}  // namespace step_layers_test
}  // namespace perfmodel
