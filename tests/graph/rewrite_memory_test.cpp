// Activations that keep less for the backward pass: what is kept, counted in bytes.
#include "perfmodel/graph/rewrites/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/activation.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/emit/norm.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "builders/emit/views.hpp"
#include "builders/models/training_step.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_memory_test {

using testing::HasSubstr;
using What = RecomputeOptions::What;

// Sizes of which no two products are equal: 68 / 4 = 17 numbers per head.
constexpr std::int64_t kBatch = 2, kSequence = 32, kHidden = 68, kHeads = 4;
constexpr std::int64_t kN = kBatch * kSequence * kHidden;
constexpr std::int64_t kScores = kBatch * kHeads * kSequence * kSequence;  // "AS"
// One number per row of a layer norm, in fp32; a layer has two norms.
constexpr std::int64_t kTwoStatistics = 2 * 4 * kBatch * kSequence;

ExecutionGraph good(Result<ExecutionGraph> graph) {
  if (graph) return std::move(*graph);
  ADD_FAILURE() << to_string(graph.error());
  return {};
}

template <class Config>
Config small(Config config, std::int64_t layers) {
  config.batch = kBatch;
  config.sequence = kSequence;
  config.layers = layers;
  config.hidden = kHidden;
  config.heads = kHeads;
  config.feed_forward = 4 * kHidden;
  config.vocabulary = 100;
  return config;
}

ExecutionGraph bert(std::int64_t layers = 3) {
  return good(build_bert(small(bert_preset("bert-base").value(), layers)));
}

ExecutionGraph llama() {
  LlamaConfig config = small(llama_preset("llama-7b").value(), 3);
  config.hidden = 64;  // heads of even width
  config.kv_heads = 2;
  return good(build_llama(config));
}

ExecutionGraph gpt(TransformerConfig::Attention attention) {
  GptConfig config = small(gpt_preset("gpt2").value(), 3);
  config.attention = attention;
  return good(build_gpt(config));
}

Seq2seqConfig translation() {
  Seq2seqConfig config = seq2seq_preset("sockeye").value();
  config.hidden = config.embedding = 32;
  config.attention = 40;
  config.batch = 4;
  config.source_steps = 9;
  config.target_steps = 5;
  config.source_vocabulary = 50;
  config.target_vocabulary = 60;
  return config;
}

constexpr FirstLayers kEverywhere;
const InPlaceOptions kBoth{.gelu = kEverywhere, .layer_norm = kEverywhere};

NamedRewrite in_place(const InPlaceOptions& options) {
  return {"in-place",
          [options](const ExecutionGraph& graph) { return rewrite_in_place(graph, options); }};
}
NamedRewrite recompute(What what, FirstLayers layers = {}) {
  return {"recompute", [what, layers](const ExecutionGraph& graph) {
            return rewrite_recomputation(graph, {.what = what, .layers = layers});
          }};
}
NamedRewrite keep_masks() {
  return {"checkpoint", [](const ExecutionGraph& graph) {
            return rewrite_checkpointing(graph, {.keep_masks = true});
          }};
}

ExecutionGraph rewritten(const ExecutionGraph& graph, const std::vector<NamedRewrite>& rewrites) {
  return good(apply_rewrites(graph, rewrites));
}

std::string refusal(const ExecutionGraph& graph, const NamedRewrite& rewrite) {
  const auto made = rewrite.apply(graph);
  if (made) return "none";
  EXPECT_EQ(made.error().code, ErrorCode::kImpossible);
  return made.error().message;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name;
  return found;
}

std::vector<bool> backward_nodes(const ExecutionGraph& graph) {
  std::vector<bool> inside(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    inside[i] = graph.name(node).starts_with("autograd::engine::evaluate_function") ||
                (node.parent >= 0 && inside[static_cast<std::size_t>(node.parent)]);
  }
  return inside;
}

// Bytes of GPU storages that ops of the forward pass make and ops of the backward pass read. The
// engine's own nodes only take gradients.
std::int64_t kept_bytes(const ExecutionGraph& graph) {
  const std::vector<bool> backward = backward_nodes(graph);
  std::map<std::int64_t, std::int64_t> made, read;  // storage -> bytes
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::set<std::int64_t> taken;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      taken.insert(tensor.storage_id);
      const bool engine = node.scope == Scope::kBackward || !graph.name(node).starts_with("aten::");
      const bool ours = graph.name(node).starts_with("tempo::");
      const auto at = made.find(tensor.storage_id);
      if (backward[i] && (!engine || ours) && at != made.end()) read.insert(*at);
    });
    if (backward[i]) continue;
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      if (!tensor.on_gpu() || taken.contains(tensor.storage_id)) return;
      std::int64_t& bytes = made[tensor.storage_id];
      bytes = std::max(bytes, tensor.bytes());
    });
  }
  std::int64_t sum = 0;
  for (const auto& [storage, bytes] : read) sum += bytes;
  return sum;
}

std::int64_t kept_by_a_layer(const std::vector<NamedRewrite>& rewrites) {
  return kept_bytes(rewritten(bert(4), rewrites)) - kept_bytes(rewritten(bert(3), rewrites));
}

// HuggingFace's BERT: norm after each residual, exact GELU, dropout after attention's softmax and
// before both residuals. 4 bytes each: input, Q, K, V, context, input and output of the first norm,
// input of the second, which are N, and input and output of GELU, 4 N: 64 N; two masks: 2 N;
// softmax, dropout and its mask: 9 AS; mean and reciprocal deviation of both norms.
TEST(KeptActivations, OfAPostNormLayer) {
  EXPECT_EQ(kept_by_a_layer({}), 66 * kN + 9 * kScores + 2 * kTwoStatistics);
}

// 16 N of the input go, a mask of 4 N comes.
TEST(KeptActivations, InPlaceGelu) {
  EXPECT_EQ(kept_by_a_layer({in_place({.gelu = kEverywhere})}),
            54 * kN + 9 * kScores + 2 * kTwoStatistics);
}

TEST(KeptActivations, InPlaceLayerNorm) {
  EXPECT_EQ(kept_by_a_layer({in_place({.layer_norm = kEverywhere})}),
            58 * kN + 9 * kScores + kTwoStatistics);
}

TEST(KeptActivations, DropoutOfAttentionMultipliedAgain) {
  EXPECT_EQ(kept_by_a_layer({recompute(What::kDropout)}),
            66 * kN + 5 * kScores + 2 * kTwoStatistics);
}

TEST(KeptActivations, AllOfTempo) {
  const std::int64_t tempo = 46 * kN + 5 * kScores + kTwoStatistics;
  EXPECT_EQ(kept_by_a_layer({in_place(kBoth), recompute(What::kDropout)}), tempo);
  EXPECT_EQ(kept_by_a_layer({recompute(What::kDropout), in_place(kBoth)}), tempo);
}

// Q, K and V, which are its inputs, stay.
TEST(KeptActivations, SelectiveKeepsNothingOfAttention) {
  EXPECT_EQ(kept_by_a_layer({recompute(What::kSelective)}), 66 * kN + 2 * kTwoStatistics);
}

TEST(KeptActivations, FullKeepsTheInputOfALayer) {
  EXPECT_EQ(kept_by_a_layer({recompute(What::kFull)}), 4 * kN);
}

// Two hidden masks of N bytes and attention's mask.
TEST(KeptActivations, CheckpointsWithMasks) {
  EXPECT_EQ(kept_by_a_layer({keep_masks()}), 4 * kN + 2 * kN + kScores);
}

// GELU is in half: 8 N of the input go, a mask of 4 N comes. Norms stay in fp32 and the following
// products keep copies in half, so that no other op reads a norm's output: only the mean goes.
TEST(KeptActivations, UnderAutocast) {
  const NamedRewrite bf16 = {"bf16", [](const ExecutionGraph& graph) {
                               return rewrite_precision(
                                   graph, {.precision = PrecisionOptions::Precision::kBf16});
                             }};
  const std::int64_t plain = kept_by_a_layer({bf16});
  // The norms' outputs in fp32 and in half, softmax in fp32; and the casts of a layer's weights.
  const std::int64_t weights = 12 * kHidden * kHidden;
  EXPECT_EQ(plain, 42 * kN + 7 * kScores + 2 * kTwoStatistics + 2 * weights);
  EXPECT_EQ(kept_by_a_layer({bf16, in_place({.gelu = kEverywhere})}), plain - 4 * kN);
  EXPECT_EQ(kept_by_a_layer({bf16, in_place({.layer_norm = kEverywhere})}), plain - kTwoStatistics);
  EXPECT_EQ(kept_by_a_layer({bf16, recompute(What::kDropout)}), plain - 2 * kScores);
}

NamedRewrite master_weights(PrecisionOptions::Precision half = PrecisionOptions::Precision::kFp16) {
  return {"o2", [half](const ExecutionGraph& graph) {
            return rewrite_precision(graph, {.precision = half, .master_weights = true});
          }};
}

// 34 s b h + 5 a s^2 (Korthikanti et al. 2022, section 4.1), and 26 N + 3 AS with all of Tempo;
// statistics of norms stay in fp32.
TEST(KeptActivations, OfAModelInHalf) {
  EXPECT_EQ(kept_by_a_layer({master_weights()}), 34 * kN + 5 * kScores + 2 * kTwoStatistics);
  EXPECT_EQ(kept_by_a_layer({master_weights(), in_place(kBoth), recompute(What::kDropout)}),
            26 * kN + 3 * kScores + kTwoStatistics);
  EXPECT_EQ(kept_by_a_layer({master_weights(), recompute(What::kFull)}), 2 * kN);
  EXPECT_EQ(kept_by_a_layer({master_weights(), keep_masks()}), 2 * kN + 2 * kN + kScores);
}

// A layer in two bytes: its input, query, value and the product of down, which are N or, with two
// heads of keys and values out of four, half of that; gate; the result of attention and, in fp32,
// its log-sum-exps.
TEST(KeptActivations, SelectiveByOpKeepsEverySecondProductAndAttention) {
  const auto kept = [](std::int64_t layers) {
    LlamaConfig config = small(llama_preset("llama-7b").value(), layers);
    config.hidden = 64;
    config.feed_forward = 256;
    config.kv_heads = 2;
    config.attention = TransformerConfig::Attention::kFlash;
    config.fused_norms = true;
    config.training.weights = DType::kBFloat16;
    return kept_bytes(rewritten(good(build_llama(config)), {recompute(What::kOp)}));
  };
  const std::int64_t n = kBatch * kSequence * 64, gate = kBatch * kSequence * 256;
  EXPECT_EQ(kept(4) - kept(3),
            2 * (n + n + n / 2 + gate + n + n) + 4 * kBatch * kHeads * kSequence);
}

// Weights and gradients in two bytes, copies and two moments in four each.
TEST(MasterWeights, TakeSixteenBytesPerParameterWithAdam) {
  BertConfig config = small(bert_preset("bert-base").value(), 2);
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  const ExecutionGraph plain = good(build_bert(config));
  const ExecutionGraph made = rewritten(plain, {master_weights()});
  const auto bytes = [](const ExecutionGraph& graph, MemoryPurpose purpose) {
    std::int64_t sum = 0;
    for (const StorageLifetime& storage : storage_lifetimes(graph).storages) {
      if (storage.purpose == purpose) sum += storage.bytes;
    }
    return sum;
  };
  const std::int64_t parameters = bytes(plain, MemoryPurpose::kGradients) / 4;
  EXPECT_EQ(bytes(made, MemoryPurpose::kGradients), 2 * parameters);
  EXPECT_EQ(bytes(plain, MemoryPurpose::kOptimizer), 8 * parameters);
  EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer), 12 * parameters);
  EXPECT_EQ(bytes(plain, MemoryPurpose::kWeights) - bytes(made, MemoryPurpose::kWeights),
            2 * parameters);
  EXPECT_TRUE(storage_lifetimes(made).without_sizes.empty());
}

// As files may have it: ids tell the order, and parents may have any.
TEST(StorageLifetimes, AParentThatComesLaterIsNone) {
  const ExecutionGraph graph = bert();
  const auto lifetimes_with_parent = [&](std::int32_t parent) {
    ExecutionGraph changed = graph;
    for (std::size_t i = 10; i < changed.nodes.size(); i += 10) {
      if (!changed.nodes[i].is_structural) changed.nodes[i].parent = parent;
    }
    return storage_lifetimes(changed);
  };
  const StorageLifetimes none = lifetimes_with_parent(-1),
                         last = lifetimes_with_parent(std::ssize(graph.nodes) - 1);
  ASSERT_EQ(last.storages.size(), none.storages.size());
  for (std::size_t i = 0; i < none.storages.size(); ++i) {
    EXPECT_EQ(last.storages[i].made_by, none.storages[i].made_by);
    EXPECT_EQ(last.storages[i].freed_after, none.storages[i].freed_after);
  }
}

TEST(MasterWeights, RefuseWithAReason) {
  const auto of = [](const PrecisionOptions& options) {
    return NamedRewrite{"precision", [options](const ExecutionGraph& graph) {
                          return rewrite_precision(graph, options);
                        }};
  };
  EXPECT_THAT(refusal(bert(), of({.precision = PrecisionOptions::Precision::kTf32,
                                  .master_weights = true})),
              HasSubstr("expected fp16 or bf16 for master weights"));
  EXPECT_THAT(refusal(rewritten(bert(), {master_weights()}), master_weights()),
              HasSubstr("expected an fp32 graph"));
  EXPECT_THAT(refusal(rewritten(bert(), {recompute(What::kFull)}), master_weights()),
              HasSubstr("expected a graph without checkpoints"));
}

// 4 bytes for each of [batch, source steps, attention] per step go; what they are made of is read
// instead: keys of all steps, [batch, source steps, attention], and a query of [batch, attention].
TEST(KeptActivations, ScoringOfADecoder) {
  const ExecutionGraph plain = good(build_seq2seq(translation()));
  const std::int64_t tanh = 4 * (4 * 9 * 40), query = 4 * (4 * 40);
  EXPECT_EQ(kept_bytes(rewritten(plain, {recompute(What::kScoring)})),
            kept_bytes(plain) - 5 * tanh + tanh + 5 * query);
  EXPECT_EQ(kept_bytes(rewritten(plain, {recompute(What::kScoring, {.count = 2})})),
            kept_bytes(plain) - 2 * tanh + tanh + 2 * query);
}

// One step of a scoring with a layer norm: keys [4, 9, 40], query [4, 1, 40].
ExecutionGraph normalised_scoring() {
  TrainingStep step{TrainingOptions{}};
  AutogradTape& tape = step.tape();
  const TensorRef key = step.parameter({40, 40}), query = step.parameter({40, 40}),
                  weight = step.parameter({40}), bias = step.parameter({40}),
                  score = step.parameter({1, 40});
  return step.run([&] {
    const TensorRef source = step.input(DType::kFloat32, {4, 9, 40});
    const TensorRef state = step.input(DType::kFloat32, {4, 1, 40});
    const TensorRef sum = add(tape, linear(tape, state, query, {}), linear(tape, source, key, {}));
    const TensorRef normed = layer_norm(tape, sum, weight, bias, 1e-5);
    return mean(tape, linear(tape, tanh(tape, normed), score, {}));
  });
}

// The sum, tanh, mean and reciprocal deviation go; query and keys come. No op read the norm's
// output.
TEST(KeptActivations, NormalisedScoring) {
  const ExecutionGraph plain = normalised_scoring();
  const ExecutionGraph made = rewritten(plain, {recompute(What::kScoring)});
  EXPECT_EQ(count(made, "aten::native_layer_norm"), 2U);
  const std::int64_t whole = 4 * (4 * 9 * 40), statistics = 2 * 4 * (4 * 9), query = 4 * (4 * 40);
  EXPECT_EQ(kept_bytes(made), kept_bytes(plain) - 2 * whole - statistics + whole + query);
}

// x gelu(x): the product reads the input, too. There is nothing to save; the mask comes.
TEST(KeptActivations, AnInputThatOthersReadStays) {
  TrainingStep step{TrainingOptions{}};
  AutogradTape& tape = step.tape();
  const TensorRef weight = step.parameter({40, 40});
  const ExecutionGraph plain = step.run([&] {
    const TensorRef x = linear(tape, step.input(DType::kFloat32, {8, 40}), weight, {});
    return mean(tape, mul(tape, x, gelu(tape, x)));
  });
  EXPECT_EQ(kept_bytes(rewritten(plain, {in_place({.gelu = kEverywhere})})),
            kept_bytes(plain) + 8 * 40);
}

TEST(RewriteMemory, InPlaceOpsStandForThePlainOnes) {
  const ExecutionGraph plain = bert(), made = rewritten(plain, {in_place(kBoth)});
  // Three layers and the head's transform; two norms per layer, one after the embeddings, one in
  // the head.
  EXPECT_EQ(count(plain, "aten::gelu"), 4U);
  EXPECT_EQ(count(made, "tempo::gelu"), 4U);
  EXPECT_EQ(count(made, "tempo::gelu_backward"), 4U);
  EXPECT_EQ(count(made, "tempo::layer_norm"), 8U);
  EXPECT_EQ(count(made, "tempo::layer_norm_backward"), 8U);
  for (const char* gone : {"aten::gelu", "aten::gelu_backward", "aten::native_layer_norm",
                           "aten::native_layer_norm_backward"}) {
    EXPECT_EQ(count(made, gone), 0U) << gone;
  }
  // The allocation of the mean and the view of it.
  EXPECT_EQ(made.nodes.size(), plain.nodes.size() - 2 * 8);
  for (const Node& node : made.nodes) {
    if (made.name(node) != "tempo::gelu_backward") continue;
    ASSERT_EQ(node.inputs_count, 4U);
    const auto inputs = made.inputs(node);
    EXPECT_EQ(made.tensors[inputs[2].index].bytes() * 4, made.tensors[inputs[1].index].bytes());
  }
}

TEST(RewriteMemory, OneByOneIsBothAtOnce) {
  const ExecutionGraph plain = bert();
  const GraphComparison comparison = compare_graphs(
      rewritten(plain, {in_place(kBoth)}),
      rewritten(plain, {in_place({.layer_norm = kEverywhere}), in_place({.gelu = kEverywhere})}),
      {.schemas = true});
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(RewriteMemory, DropoutIsOneMultiplicationPerLayer) {
  const ExecutionGraph plain = bert(), made = rewritten(plain, {recompute(What::kDropout)});
  EXPECT_EQ(count(made, "aten::_masked_scale"), 3U);
  EXPECT_EQ(count(made, "aten::native_dropout"), count(plain, "aten::native_dropout"));
  // A region, the multiplication, and the two views of matmul: expand and view (expand calls one).
  EXPECT_EQ(made.nodes.size(), plain.nodes.size() + 3 * 5);
  for (const Node& node : made.nodes) {
    if (made.name(node) != "CheckpointFunctionRecompute") continue;
    const Node& function = made.nodes[static_cast<std::size_t>(node.parent)];
    EXPECT_EQ(made.name(function), "BmmBackward0");
    EXPECT_EQ(made.nodes[static_cast<std::size_t>(made.children(function)[0])].id, node.id);
    EXPECT_EQ(node.thread, function.thread);
    for (std::int32_t child : made.children(node)) {
      EXPECT_EQ(made.nodes[static_cast<std::size_t>(child)].seq_id, -1);
    }
  }
}

TEST(RewriteMemory, KeptMasksAreNotDrawnAgain) {
  const ExecutionGraph plain = bert(), made = rewritten(plain, {keep_masks()});
  // Three in each of three layers; the one after the embeddings is in none.
  EXPECT_EQ(count(plain, "aten::native_dropout"), 10U);
  EXPECT_EQ(count(made, "aten::native_dropout"), 10U);
  EXPECT_EQ(count(made, "aten::_masked_scale"), 9U);
  EXPECT_EQ(count(rewritten(plain, {recompute(What::kFull)}), "aten::native_dropout"), 19U);
}

TEST(RewriteMemory, FullIsACheckpointPerLayerAndNoneIsNothing) {
  const ExecutionGraph plain = bert();
  EXPECT_TRUE(compare_graphs(rewritten(plain, {recompute(What::kFull)}),
                             good(rewrite_checkpointing(plain, {.every = 1})))
                  .same());
  EXPECT_TRUE(graph_difference(plain, rewritten(plain, {recompute(What::kNone)})).none());
}

TEST(RewriteMemory, TheFirstLayersAlone) {
  const ExecutionGraph plain = bert();
  const FirstLayers two{.count = 2};
  const ExecutionGraph made = rewritten(plain, {in_place({.gelu = two, .layer_norm = two})});
  EXPECT_EQ(count(made, "tempo::gelu"), 2U);
  EXPECT_EQ(count(made, "tempo::layer_norm"), 4U);
  EXPECT_EQ(count(rewritten(plain, {recompute(What::kDropout, two)}), "aten::_masked_scale"), 2U);
  EXPECT_EQ(count(rewritten(plain, {recompute(What::kSelective, two)}), "CheckpointFunction"), 2U);
  EXPECT_EQ(count(rewritten(plain, {recompute(What::kFull, two)}), "CheckpointFunction"), 2U);
  // Layers in which an op stands for another one are layers still.
  const FirstLayers one{.count = 1};
  const ExecutionGraph both = rewritten(
      plain, {in_place({.gelu = one}), in_place({.layer_norm = one}), recompute(What::kFull, one)});
  EXPECT_EQ(count(both, "tempo::gelu"), 2U);  // forward and recomputed
  EXPECT_EQ(count(both, "CheckpointFunction"), 1U);
  EXPECT_EQ(refusal(plain, recompute(What::kDropout, {.count = 4})),
            "checkpointing: expected at most the 3 layers that there are, found 4");
}

std::vector<std::pair<std::string, std::vector<NamedRewrite>>> all_options() {
  return {{"gelu", {in_place({.gelu = kEverywhere})}},
          {"layer norm", {in_place({.layer_norm = kEverywhere})}},
          {"dropout", {recompute(What::kDropout)}},
          {"selective", {recompute(What::kSelective)}},
          {"full", {recompute(What::kFull)}},
          {"masks", {keep_masks()}},
          {"tempo", {in_place(kBoth), recompute(What::kDropout)}},
          {"tempo and layers", {in_place(kBoth), recompute(What::kDropout), keep_masks()}}};
}

void expect_any_order(const ExecutionGraph& graph, const std::vector<NamedRewrite>& rewrites,
                      const NamedRewrite& other) {
  SCOPED_TRACE(other.name);
  std::vector<NamedRewrite> first = rewrites, last = {other};
  first.push_back(other);
  last.insert(last.end(), rewrites.begin(), rewrites.end());
  const GraphComparison comparison =
      compare_graphs(rewritten(graph, first), rewritten(graph, last), {.schemas = true});
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(RewriteMemory, CommutesWithSizesAndOptimizer) {
  const NamedRewrite batch = {
      "batch", [](const ExecutionGraph& graph) { return set_batch_size(graph, {.batch = 6}); }};
  const NamedRewrite sequence = {"sequence", [](const ExecutionGraph& graph) {
                                   return set_sequence_length(graph, {.length = 24});
                                 }};
  const NamedRewrite optimizer = {
      "optimizer", [](const ExecutionGraph& graph) {
        return rewrite_optimizer(graph,
                                 {.implementation = TrainingOptions::Implementation::kFused});
      }};
  const ExecutionGraph graph = bert();
  for (const auto& [name, rewrites] : all_options()) {
    SCOPED_TRACE(name);
    for (const NamedRewrite& other : {batch, sequence, optimizer}) {
      expect_any_order(graph, rewrites, other);
    }
  }
  expect_any_order(good(build_seq2seq(translation())), {recompute(What::kScoring)}, batch);
}

// Attention holds neither GELU nor norms.
TEST(RewriteMemory, InPlaceOpsComeBeforeOrBehindWhatIsRecomputedElsewhere) {
  const ExecutionGraph graph = bert();
  expect_any_order(graph, {in_place(kBoth)}, recompute(What::kSelective));
  expect_any_order(graph, {in_place(kBoth)}, recompute(What::kDropout));
}

TEST(RewriteMemory, ComesBehindAutocastWhereItRecomputes) {
  const NamedRewrite bf16 = {"bf16", [](const ExecutionGraph& graph) {
                               return rewrite_precision(
                                   graph, {.precision = PrecisionOptions::Precision::kBf16});
                             }};
  const ExecutionGraph graph = bert();
  expect_any_order(graph, {in_place(kBoth)}, bf16);
  for (const auto& [name, rewrites] : all_options()) {
    SCOPED_TRACE(name);
    EXPECT_GT(rewritten(rewritten(graph, {bf16}), rewrites).nodes.size(), 0U);
  }
  EXPECT_THAT(refusal(rewritten(graph, {recompute(What::kDropout)}), bf16),
              HasSubstr("change the precision first, then add checkpoints"));
}

// Under autocast the product reads a copy in half of what dropout makes: it is cast again.
TEST(RewriteMemory, DropoutUnderAutocastIsCastAgain) {
  const ExecutionGraph plain =
      good(rewrite_precision(bert(), {.precision = PrecisionOptions::Precision::kBf16}));
  const ExecutionGraph made = rewritten(plain, {recompute(What::kDropout)});
  EXPECT_EQ(count(made, "aten::_masked_scale"), 3U);
  EXPECT_EQ(count(made, "aten::_to_copy"), count(plain, "aten::_to_copy") + 3);
  EXPECT_EQ(kept_bytes(plain) - kept_bytes(made), 3 * 2 * kScores);
}

TEST(RewriteMemory, WhatIsWrittenIsReadTheSame) {
  const ExecutionGraph graph = bert();
  for (const auto& [name, rewrites] : all_options()) {
    SCOPED_TRACE(name);
    const std::string text = execution_graph_json(rewritten(graph, rewrites));
    const auto read = parse_execution_graph(text, "written");
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(execution_graph_json(*read), text);
  }
}

TEST(RewriteMemory, EveryFunctionFindsItsOp) {
  const ExecutionGraph graph = bert();
  for (const auto& [name, rewrites] : all_options()) {
    SCOPED_TRACE(name);
    const ExecutionGraph made = rewritten(graph, rewrites);
    const std::vector<std::int32_t> partners = forward_partners(made);
    std::set<std::int64_t> numbers;
    for (std::size_t i = 0; i < made.nodes.size(); ++i) {
      if (made.nodes[i].scope != Scope::kBackward || made.nodes[i].seq_id < 0) continue;
      EXPECT_GE(partners[i], 0) << made.name(made.nodes[i]);
      EXPECT_TRUE(numbers.insert(made.nodes[i].seq_id).second) << made.name(made.nodes[i]);
    }
  }
}

TEST(RewriteMemory, AllTransformersKeepNoScores) {
  T5Config t5 = small(t5_preset("t5-base").value(), 3);
  t5.decoder_layers = 3;
  const std::pair<ExecutionGraph, std::size_t> models[] = {
      {bert(), 3},
      {gpt(TransformerConfig::Attention::kEager), 3},
      {good(build_opt(small(opt_preset("opt-125m").value(), 3))), 3},
      {good(build_torch_encoder(small(TransformerConfig{}, 3))), 3},
      {llama(), 3},
      {good(build_t5(t5)), 9},  // three of the encoder, two in each of three layers of the decoder
  };
  for (const auto& [graph, cores] : models) {
    const ExecutionGraph made = rewritten(graph, {recompute(What::kSelective)});
    EXPECT_EQ(count(made, "CheckpointFunction"), cores);
    // A mask that is added to the scores is read again.
    const std::int64_t mask = 4 * kSequence * kSequence;
    const std::int64_t scores = static_cast<std::int64_t>(cores) * 4 * kScores;
    EXPECT_LE(kept_bytes(made), kept_bytes(graph) - scores + mask);
  }
}

TEST(RewriteMemory, RefusesWithAReason) {
  const ExecutionGraph flash = gpt(TransformerConfig::Attention::kFlash);
  for (const What what : {What::kSelective, What::kDropout}) {
    EXPECT_THAT(
        refusal(flash, recompute(what)),
        testing::MatchesRegex("recomputation: expected attention in ops of its own, found "
                              "aten::_scaled_dot_product_flash_attention \\(node [0-9]+\\), "
                              "which keeps no scores"));
  }
  EXPECT_EQ(refusal(flash, in_place({.gelu = kEverywhere})),
            "in-place: expected aten::gelu and its backward function, found none");
  EXPECT_EQ(
      refusal(flash, recompute(What::kScoring)),
      "recomputation: expected the scoring of a recurrent decoder, tanh(query + key) in front "
      "of a product, found none");
  const ExecutionGraph without_dropout = llama();
  EXPECT_EQ(
      refusal(without_dropout, recompute(What::kDropout)),
      "recomputation: expected aten::native_dropout between the softmax and the product with V, "
      "found none (retarget the graph of a CPU first)");
  EXPECT_EQ(
      refusal(without_dropout, keep_masks()),
      "checkpointing: expected aten::native_dropout, whose masks can be kept, found none (retarget "
      "the graph of a CPU first)");
  EXPECT_THAT(refusal(rewritten(bert(), {recompute(What::kFull)}), in_place(kBoth)),
              testing::MatchesRegex(
                  "in-place: expected aten::gelu outside of checkpoints, found one that is "
                  "recomputed \\(node [0-9]+\\): in-place ops first, then checkpoints"));
  BertConfig forward = small(bert_preset("bert-base").value(), 3);
  forward.training.phase = TrainingOptions::Phase::kForward;
  EXPECT_EQ(refusal(good(build_bert(forward)), recompute(What::kSelective)),
            "recomputation: expected a backward pass, found none");
  EXPECT_EQ(refusal(good(build_seq2seq(translation())), recompute(What::kScoring, {.count = 6})),
            "recomputation: expected at most the 5 steps that there are, found 6");
}

struct LateReads {
  std::size_t reads = 0, stale = 0;
};

// Storages that an op of the forward pass makes and `reader` reads in the backward pass; stale:
// given to another tensor in between.
LateReads late_reads(const ExecutionGraph& graph, std::string_view forward_op, std::size_t result,
                     std::string_view reader) {
  std::map<std::int64_t, std::pair<std::int64_t, std::size_t>> made;  // number -> storage, node
  std::map<std::int64_t, std::size_t> last_maker;                     // storage -> node
  LateReads found;
  std::vector<std::size_t> below(graph.nodes.size());  // the outermost node that made it
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (graph.name(node) == reader) {
      const Node& function = graph.nodes[static_cast<std::size_t>(node.parent)];
      const auto& [storage, maker] = made.at(function.seq_id);
      ++found.reads;
      EXPECT_EQ(graph.tensors[graph.inputs(node)[1].index].storage_id, storage);
      found.stale += last_maker.at(storage) > maker;
    }
    std::set<std::int64_t> taken;
    for_each_tensor(graph, graph.inputs(node),
                    [&](const Tensor& tensor) { taken.insert(tensor.storage_id); });
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      if (!taken.contains(tensor.storage_id)) last_maker[tensor.storage_id] = i;
    });
    if (graph.name(node) == forward_op && node.seq_id >= 0) {
      std::size_t end = i;  // ops below allocate the same memory
      while (end + 1 < graph.nodes.size() &&
             graph.nodes[end + 1].parent >= static_cast<std::int32_t>(i)) {
        ++end;
      }
      made[node.seq_id] = {graph.tensors[graph.outputs(node)[result].index].storage_id, end};
    }
  }
  return found;
}

// Ids in recordings are addresses. The output of the norm after the embeddings is not kept: here
// the first GELU's output gets its memory, as from an allocator.
TEST(RewriteMemory, TensorsThatAreKeptLongerHaveIdsOfTheirOwn) {
  ExecutionGraph recorded = bert();
  recorded.built = false;
  const auto first_result = [&](std::string_view name) {
    const auto node = std::ranges::find_if(
        recorded.nodes, [&](const Node& candidate) { return recorded.name(candidate) == name; });
    return recorded.tensors[recorded.outputs(*node)[0].index];
  };
  const Tensor free = first_result("aten::native_layer_norm"), late = first_result("aten::gelu");
  for (Tensor& tensor : recorded.tensors) {
    if (tensor.id == late.id) tensor.id = free.id;
    if (tensor.storage_id == late.storage_id) tensor.storage_id = free.storage_id;
  }
  const ExecutionGraph made = rewritten(recorded, {in_place({.layer_norm = kEverywhere})});
  const LateReads reads = late_reads(made, "tempo::layer_norm", 0, "tempo::layer_norm_backward");
  EXPECT_EQ(reads.reads, 8U);
  EXPECT_EQ(reads.stale, 0U);
}

TEST(RewriteMemory, TakesARecordedEncoder) {
  const ExecutionGraph cpu =
      good(read_execution_graph(PERFMODEL_SOURCE_DIR "/tests/graph/recorded/encoder_fp32.json.gz"));
  EXPECT_THAT(refusal(cpu, recompute(What::kDropout)),
              HasSubstr("retarget the graph of a CPU first"));
  const ExecutionGraph gpu = good(retarget(cpu));
  for (const ExecutionGraph* graph : {&cpu, &gpu}) {
    EXPECT_EQ(count(rewritten(*graph, {recompute(What::kSelective)}), "CheckpointFunction"), 2U);
    EXPECT_EQ(count(rewritten(*graph, {in_place(kBoth)}), "tempo::gelu"), 2U);
  }
  EXPECT_EQ(count(rewritten(gpu, {recompute(What::kDropout)}), "aten::_masked_scale"), 2U);
  const GraphComparison comparison = compare_graphs(
      good(retarget(rewritten(cpu, {in_place(kBoth)}))), rewritten(gpu, {in_place(kBoth)}));
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(RewriteMemory, ScoringIsRecomputedBeforeOrBehindRetarget) {
  Seq2seqConfig config = translation();
  config.encoder_form = RecurrentForm::kUnfused;
  config.decoder_form = RecurrentForm::kUnfused;
  config.bidirectional = false;
  config.training.pytorch.device = {.kind = Device::Kind::kCpu};
  expect_any_order(good(build_seq2seq(config)), {recompute(What::kScoring)},
                   {"retarget", [](const ExecutionGraph& graph) { return retarget(graph); }});
}

}  // namespace rewrite_memory_test
}  // namespace perfmodel
