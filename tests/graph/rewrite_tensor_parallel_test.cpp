// One rank of Megatron's tensor parallelism: work, traffic and sizes against closed forms.
#include "perfmodel/graph/rewrites/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"

namespace perfmodel {
namespace rewrite_tensor_parallel_test {

using testing::HasSubstr;

constexpr std::int64_t kLayers = 2, kBatch = 3, kSequence = 64, kHidden = 256, kVocabulary = 1024;

ExecutionGraph value(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

template <class Config>
Config small(Config config) {
  config.layers = kLayers;
  config.batch = kBatch;
  config.sequence = kSequence;
  config.hidden = kHidden;
  config.heads = 8;
  config.feed_forward = 1024;
  config.vocabulary = kVocabulary;
  return config;
}

ExecutionGraph gpt() { return value(build_gpt(small(*gpt_preset("gpt2")))); }
ExecutionGraph opt() { return value(build_opt(small(*opt_preset("opt-125m")))); }
ExecutionGraph bert() { return value(build_bert(small(*bert_preset("bert-base")))); }

ExecutionGraph llama(std::int64_t kv_heads = 8, bool flash = false) {
  LlamaConfig config = small(*llama_preset("llama-7b"));
  config.dropout = 0;
  config.kv_heads = kv_heads;
  if (flash) config.attention = TransformerConfig::Attention::kFlash;
  return value(build_llama(config));
}

ExecutionGraph split(const ExecutionGraph& graph, std::int64_t ranks, bool sequence = false) {
  return value(make_tensor_parallel(graph, {.ranks = ranks, .sequence_parallel = sequence}));
}

std::string refusal(const ExecutionGraph& graph, TensorParallelOptions options) {
  const auto made = make_tensor_parallel(graph, options);
  return made ? "" : made.error().message;
}

const Tensor& tensor(const ExecutionGraph& graph, const Node& node, std::size_t at) {
  return graph.tensors[graph.inputs(node)[at].index];
}

// FLOP of all matrix products; factors must fit.
double product_flop(const ExecutionGraph& graph) {
  double flop = 0;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (name != "aten::mm" && name != "aten::addmm" && name != "aten::bmm") continue;
    const std::size_t first = name == "aten::addmm" ? 1 : 0;
    bool outer = false;  // the op around it is autocast's
    for (std::int32_t child : graph.children(node)) {
      outer |= graph.name(graph.nodes[static_cast<std::size_t>(child)]) == name;
    }
    if (outer) continue;
    const auto a = graph.shape(tensor(graph, node, first));
    const auto b = graph.shape(tensor(graph, node, first + 1));
    EXPECT_EQ(a.back(), b[b.size() - 2]) << name << " (node " << node.id << ")";
    flop +=
        2.0 * static_cast<double>(tensor(graph, node, first).numel) * static_cast<double>(b.back());
  }
  return flop;
}

struct Traffic {
  std::size_t calls = 0;
  double bytes = 0;  // size of the whole tensor
};
std::map<std::string, Traffic> traffic(const ExecutionGraph& graph) {
  std::map<std::string, Traffic> found;
  for (const Node& node : graph.nodes) {
    if (node.comm < 0) continue;
    const std::string& kind = graph.comm_records[static_cast<std::size_t>(node.comm)].collective;
    double bytes = 0;
    for (const auto side : {graph.inputs(node), graph.outputs(node)}) {
      for_each_tensor(graph, side, [&](const Tensor& one) {
        bytes = std::max(bytes, static_cast<double>(one.bytes()));
      });
    }
    found[kind].calls += 1;
    found[kind].bytes += bytes;
  }
  return found;
}

// Elements that the optimizer trains.
std::int64_t trained(const ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    if (!graph.name(node).starts_with("aten::_foreach_addcdiv_")) continue;
    std::int64_t elements = 0;
    for (const Argument& parameter : graph.elements(graph.inputs(node)[0])) {
      elements += graph.tensors[parameter.index].numel;
    }
    return elements;
  }
  return 0;
}

TEST(TensorParallel, OneRankIsTheGraphItself) {
  const ExecutionGraph before = gpt(), after = split(before, 1, true);
  ASSERT_EQ(after.nodes.size(), before.nodes.size());
  EXPECT_EQ(after.shape_pool, before.shape_pool);
  EXPECT_TRUE(after.comm_records.empty());
}

TEST(TensorParallel, RanksShareAllProducts) {
  for (const ExecutionGraph& graph : {gpt(), opt()}) {
    const double whole = product_flop(graph);
    for (std::int64_t ranks : {2, 4, 8}) {
      for (bool sequence : {false, true}) {
        EXPECT_DOUBLE_EQ(product_flop(split(graph, ranks, sequence)) * static_cast<double>(ranks),
                         whole)
            << ranks;
      }
    }
  }
}

// Every rank computes Llama's angles: 2 * S * d / 2 FLOP.
TEST(TensorParallel, RanksShareAllProductsButTheAngles) {
  const ExecutionGraph graph = llama();
  const double whole = product_flop(graph), angles = kSequence * kHidden / 8.0;
  EXPECT_DOUBLE_EQ(product_flop(split(graph, 4)) * 4, whole + 3 * angles);
}

// The transform of BERT's head stays whole: 3 products of 2 B S H H.
TEST(TensorParallel, BertsHeadStaysWhole) {
  const ExecutionGraph graph = bert();
  const double transform = 3 * 2.0 * kBatch * kSequence * kHidden * kHidden;
  EXPECT_DOUBLE_EQ(product_flop(split(graph, 4)) * 4, product_flop(graph) + 3 * transform);
}

// Whatever the batch: it must not be taken for a dimension that is cut. The decoder makes its own
// tokens.
TEST(TensorParallel, T5SharesItsProductsAtAnyBatch) {
  for (std::int64_t batch : {2, 3, 8}) {
    T5Config config = small(*t5_preset("t5-small"));
    config.batch = batch;
    config.decoder_layers = kLayers;
    config.target_sequence = 32;
    config.head_width = 32;
    const ExecutionGraph graph = value(build_t5(config));
    for (std::int64_t ranks : {2, 4, 8}) {
      EXPECT_DOUBLE_EQ(product_flop(split(graph, ranks)) * static_cast<double>(ranks),
                       product_flop(graph))
          << "batch " << batch << " on " << ranks << " ranks";
    }
  }
}

// Shoeybi et al. 2019: two all-reduces of [B, S, H] per layer and pass, one more for the embedding
// and one for the output layer; three numbers per token for the loss.
TEST(TensorParallel, AllReducesAreTheTextbooks) {
  for (const ExecutionGraph& graph : {gpt(), llama(), opt()}) {
    const auto found = traffic(split(graph, 4));
    ASSERT_EQ(found.size(), 1u);
    const double rows = 4.0 * kBatch * (kSequence - 1),
                 activation = 4.0 * kBatch * kSequence * kHidden;
    EXPECT_EQ(found.at("allreduce").calls, 4 * kLayers + 2 + 3);
    EXPECT_DOUBLE_EQ(found.at("allreduce").bytes, (4 * kLayers + 2) * activation + 3 * rows);
  }
}

// Post-norm layers add the residual's gradient first; the sum is the same.
TEST(TensorParallel, BertHasAsManyAllReduces) {
  EXPECT_EQ(traffic(split(bert(), 4)).at("allreduce").calls, 4 * kLayers + 2 + 3);
}

// Korthikanti et al. 2022: an all-gather and a reduce-scatter for each all-reduce, and once more
// the input of the first product of each block for the gradient of its weight.
TEST(TensorParallel, SequenceParallelTrafficIsTheTextbooks) {
  for (const ExecutionGraph& graph : {gpt(), llama(), opt()}) {
    const auto found = traffic(split(graph, 4, true));
    const double activation = 4.0 * kBatch * kSequence * kHidden;
    const std::size_t blocks = 2 * kLayers + 1;
    EXPECT_EQ(found.at("_reduce_scatter_base").calls, 2 * blocks);
    EXPECT_EQ(found.at("_allgather_base").calls, 3 * blocks);
    EXPECT_EQ(found.at("allreduce").calls, 3u);
    EXPECT_DOUBLE_EQ(found.at("_reduce_scatter_base").bytes,
                     static_cast<double>(2 * blocks) * activation);
    EXPECT_DOUBLE_EQ(found.at("_allgather_base").bytes,
                     static_cast<double>(3 * blocks) * activation);
  }
}

// Post-norm layers: the residual's gradient is added after the one sum of the gradients of q, k and
// v, with as many additions as in the whole graph.
TEST(TensorParallel, BertsSequenceParallelTrafficIsTheTextbooks) {
  const ExecutionGraph graph = bert(), made = split(graph, 4, true);
  const auto found = traffic(made);
  const double activation = 4.0 * kBatch * kSequence * kHidden;
  const std::size_t blocks = 2 * kLayers + 1;
  EXPECT_EQ(found.at("_reduce_scatter_base").calls, 2 * blocks);
  EXPECT_EQ(found.at("_allgather_base").calls, 3 * blocks);
  EXPECT_DOUBLE_EQ(found.at("_reduce_scatter_base").bytes,
                   static_cast<double>(2 * blocks) * activation);
  const auto sums = [](const ExecutionGraph& of) {
    return std::ranges::count_if(of.nodes, [&](const Node& node) {
      return node.children_count == 0 && of.name(node).starts_with("aten::add");
    });
  };
  EXPECT_EQ(sums(made), sums(graph));
}

// An encoder layer has two blocks, a decoder layer three: a reduce-scatter each way. In addition,
// two lookups, the output layer, and the encoder's result, for which the gradients of all decoder
// layers are one sum.
TEST(TensorParallel, T5SharesTokensOfEncoderAndDecoder) {
  T5Config config = small(*t5_preset("t5-small"));
  config.decoder_layers = 3;
  config.target_sequence = 32;
  config.head_width = 32;
  const ExecutionGraph graph = value(build_t5(config)), made = split(graph, 4, true);
  EXPECT_DOUBLE_EQ(product_flop(made) * 4, product_flop(graph));
  const auto found = traffic(made);
  EXPECT_EQ(found.at("_reduce_scatter_base").calls, 2 * (2 * kLayers + 3 * 3) + 2 + 1 + 1);
}

// Norms stay whole on every rank: 2 L + 1 of weights [H].
TEST(TensorParallel, OptimizerTrainsOneRanksShare) {
  const ExecutionGraph graph = llama(4, true);
  const std::int64_t norms = (2 * kLayers + 1) * kHidden, all = trained(graph);
  ASSERT_GT(all, norms);
  EXPECT_EQ(trained(split(graph, 4)), (all - norms) / 4 + norms);
  EXPECT_EQ(trained(split(graph, 4, true)), (all - norms) / 4 + norms);
}

TEST(TensorParallel, NormsWorkOnOneRanksTokens) {
  const ExecutionGraph graph = split(gpt(), 4, true);
  std::size_t norms = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::native_layer_norm") continue;
    EXPECT_EQ(tensor(graph, node, 0).numel, kBatch * kSequence * kHidden / 4);
    ++norms;
  }
  EXPECT_EQ(norms, 2 * kLayers + 1);
}

TEST(TensorParallel, GroupedKeysAreShared) {
  const ExecutionGraph graph = split(llama(4, true), 4);
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::scaled_dot_product_attention") continue;
    EXPECT_EQ(graph.shape(tensor(graph, node, 0))[1], 2);  // 2 of 8 heads, to which keys repeat
  }
}

TEST(TensorParallel, KeepsHalfTypesAndCheckpoints) {
  const ExecutionGraph half =
      value(rewrite_precision(llama(8, true), {.precision = PrecisionOptions::Precision::kBf16}));
  const ExecutionGraph checkpointed = value(rewrite_checkpointing(half, {.every = 1}));
  const double angles = kSequence * kHidden / 8.0;
  for (bool sequence : {false, true}) {
    const ExecutionGraph made = split(checkpointed, 2, sequence);
    EXPECT_DOUBLE_EQ(product_flop(made) * 2, product_flop(checkpointed) + angles);
    const auto found = traffic(made);
    // The forward pass of each layer twice.
    const std::size_t sums =
        sequence ? found.at("_reduce_scatter_base").calls : found.at("allreduce").calls - 3;
    EXPECT_EQ(sums, 6 * kLayers + 2);
  }
}

TEST(TensorParallel, RefusesInOneLine) {
  EXPECT_THAT(refusal(gpt(), {.ranks = 0}), HasSubstr("expected 1 to"));
  EXPECT_THAT(refusal(gpt(), {.ranks = 3}), HasSubstr("divide"));
  EXPECT_THAT(refusal(llama(4), {.ranks = 8}),
              HasSubstr("number of heads that divides by 8 ranks, found 4"));
  EXPECT_THAT(refusal(split(gpt(), 2), {.ranks = 2}), HasSubstr("without collectives"));
  EXPECT_THAT(refusal(value(build_resnet(*resnet_preset("resnet18"))), {.ranks = 2}),
              HasSubstr("two products in a row"));
  GptConfig odd = small(*gpt_preset("gpt2"));
  odd.vocabulary = 1025;
  EXPECT_THAT(refusal(value(build_gpt(odd)), {.ranks = 2}),
              HasSubstr("expected a vocabulary that divides by 2 ranks, found 1025 (Megatron-LM "
                        "would fill it up to 1280)"));
  GptConfig experts = small(*gpt_preset("gpt2"));
  experts.experts.experts = 4;
  EXPECT_THAT(refusal(value(build_gpt(experts)), {.ranks = 2}), HasSubstr("found experts"));
  EXPECT_THAT(refusal(gpt(), {.ranks = 128, .sequence_parallel = true}), HasSubstr("divide"));
}

}  // namespace rewrite_tensor_parallel_test
}  // namespace perfmodel
