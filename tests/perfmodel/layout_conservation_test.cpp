// However a job is laid out, its ranks together multiply what one GPU would.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layout/layout_work.hpp"
#include "layout/shard_costs.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_conservation_test {

// FLOP of all matrix products of a graph, including attention's if it is eager.
double product_flop_of(const ExecutionGraph& graph) {
  double flop = 0;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (name != "aten::mm" && name != "aten::addmm" && name != "aten::bmm") continue;
    const std::size_t first = name == "aten::addmm" ? 1 : 0;
    const Tensor& a = graph.tensors[graph.inputs(node)[first].index];
    const Tensor& b = graph.tensors[graph.inputs(node)[first + 1].index];
    flop += 2.0 * static_cast<double>(a.numel) * static_cast<double>(graph.shape(b).back());
  }
  return flop;
}

ShardQuestion conserved_shard(bool gated, LayoutJob::Attention attention) {
  ShardQuestion question{.model = {.name = "conserved",
                                   .layers = 8,
                                   .hidden = 512,
                                   .heads = 8,
                                   .feed_forward = 2048,
                                   .vocabulary = 8192,
                                   .gated = gated},
                         .sequence = 256,
                         .attention = attention};
  if (!gated) {
    question.model.positions = 256;
    question.model.biases = true;
    question.model.rms_norm = false;
    question.model.activation = DecoderModel::Activation::kGelu;
  }
  return question;
}

/// FLOP of one microbatch on one rank: of a layer, and of all that is no layer.
struct ShardFlop {
  double layer = 0, rest = 0;
};
ShardFlop flop_of(const ShardQuestion& question) {
  const double one = product_flop_of(shard_graph(question, 1).value());
  const double two = product_flop_of(shard_graph(question, 2).value());
  return {two - one, 2 * one - two};
}

// The angles of rotary embeddings, 2 s d/2 per graph, are computed on every rank.
double angles_flop(const ShardQuestion& question) {
  const DecoderModel& model = question.model;
  if (!model.gated) return 0;
  return static_cast<double>(question.sequence * (model.hidden / model.heads));
}

// Every layout of 16 GPUs: tp x pp x dp, interleaved or not, with ZeRO or not, each micro-batch.
TEST(ConservedFlop, RanksTogetherMultiplyWhatOneGpuWould) {
  constexpr std::int64_t kGpus = 16, kGlobalBatch = 32;
  for (const bool gated : {true, false}) {
    const ShardQuestion whole = conserved_shard(gated, LayoutJob::Attention::kEager);
    const ShardFlop one = flop_of(whole);
    const double layers = static_cast<double>(whole.model.layers);
    const double expected =
        static_cast<double>(kGlobalBatch) * (layers * one.layer + one.rest - angles_flop(whole));
    int layouts = 0;
    for (std::int64_t tp : {1, 2, 4, 8}) {
      for (std::int64_t micro_batch : {1, 2}) {
        for (const bool sequence : {false, true}) {
          ShardQuestion question = whole;
          question.tp = tp;
          question.micro_batch = micro_batch;
          question.sequence_parallel = sequence && tp > 1;
          const ShardFlop shard = flop_of(question);
          const double rest = shard.rest - angles_flop(question);
          for (std::int64_t pp = 1; pp * tp <= kGpus && pp <= 8; pp *= 2) {
            for (std::int64_t vp = 1; vp * pp <= 8 && (pp > 1 || vp == 1); vp *= 2) {
              const std::int64_t dp = kGpus / tp / pp;
              const auto chunks = spread_layers(question.model, pp * vp, false).value();
              double stages = 0;
              for (const ChunkLayers& chunk : chunks) {
                stages += static_cast<double>(chunk.layers) * shard.layer;
                // Embeddings multiply nothing.
                if (chunk.heads && chunk.loses) stages += rest;
              }
              const auto microbatches = static_cast<double>(kGlobalBatch / (dp * micro_batch));
              const double all = stages * microbatches * static_cast<double>(dp * tp);
              EXPECT_NEAR(all / expected, 1, 1e-12)
                  << "tp " << tp << " pp " << pp << " vp " << vp << " micro-batch " << micro_batch;
              ++layouts;
            }
          }
        }
      }
    }
    EXPECT_GT(layouts, 80);
  }
}

// Selective recomputation runs the core of attention again: 2 products of 2 b s s h / tp.
TEST(ConservedFlop, SelectiveRecomputationIsCountedApart) {
  for (std::int64_t tp : {1, 4}) {
    ShardQuestion question = conserved_shard(false, LayoutJob::Attention::kEager);
    question.tp = tp;
    const double plain = flop_of(question).layer;
    question.recompute = LayoutRecompute::kSelective;
    const double core = 2 * 2.0 * 256 * 256 * 512 / static_cast<double>(tp);
    EXPECT_NEAR((flop_of(question).layer - plain) / core, 1, 1e-12);
  }
}

// Full recomputation adds the forward pass of the layers to the backward pass, and no traffic of
// data parallelism.
TEST(ConservedFlop, FullRecomputationIsCountedApart) {
  static const Predictor predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  ShardQuestion question = conserved_shard(true, LayoutJob::Attention::kFlash);
  question.tp = 2;
  const auto plain = shard_costs(question, predictor, "h100-sxm-80gb", {.keep_ops = true}).value();
  question.recompute = LayoutRecompute::kFull;
  const auto again = shard_costs(question, predictor, "h100-sxm-80gb", {.keep_ops = true}).value();
  EXPECT_EQ(again.layer.forward.kernel_us, plain.layer.forward.kernel_us);
  EXPECT_NEAR(again.layer.backward.kernel_us,
              plain.layer.backward.kernel_us + plain.layer.forward.kernel_us, 1e-6);
  EXPECT_NEAR(
      again.layer.backward.by_kind.all_reduce.bytes,
      plain.layer.backward.by_kind.all_reduce.bytes + plain.layer.forward.by_kind.all_reduce.bytes,
      1e-6);
  EXPECT_EQ(again.layer.parameters, plain.layer.parameters);
}

TEST(ConservedFlop, OneTensorParallelRankIsTheModelItself) {
  const ShardQuestion question = conserved_shard(true, LayoutJob::Attention::kFlash);
  ShardQuestion one = question;
  one.tp = 1;
  one.sequence_parallel = true;
  const ExecutionGraph a = shard_graph(question, 2).value(), b = shard_graph(one, 2).value();
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  EXPECT_EQ(a.shape_pool, b.shape_pool);
  EXPECT_TRUE(b.comm_records.empty());
}

}  // namespace layout_conservation_test
}  // namespace perfmodel
