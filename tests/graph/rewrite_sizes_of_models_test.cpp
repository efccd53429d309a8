// A model built with one batch or sequence and rewritten is the model built with the other.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_sizes_of_models_test {

using Attention = TransformerConfig::Attention;

// Sizes that are no multiples of one another, so that none can be taken for another one.
constexpr std::int64_t kBatch = 6, kOtherBatch = 10, kSequence = 64, kOtherSequence = 96;

struct Model {
  std::string name;
  std::function<Result<ExecutionGraph>(std::int64_t batch, std::int64_t sequence)> build;
  bool has_sequence = true;
};

template <class Config>
Config sized(Config config, std::int64_t batch, std::int64_t sequence) {
  config.batch = batch;
  config.sequence = sequence;
  config.layers = 2;
  config.hidden = 120;
  config.heads = 3;
  config.feed_forward = 136;
  config.vocabulary = 500;
  return config;
}

std::vector<Model> models() {
  const auto gpt = [](Attention attention) {
    return [attention](std::int64_t batch, std::int64_t sequence) {
      auto config = sized(gpt_preset("gpt2").value(), batch, sequence);
      config.attention = attention;
      return build_gpt(config);
    };
  };
  const auto encoder = [](std::int64_t batch, std::int64_t sequence) {
    TransformerConfig config = sized(TransformerConfig{}, batch, sequence);
    config.training.pytorch.major = 1;
    config.training.pytorch.minor = 13;
    return build_torch_encoder(config);
  };
  const auto llama = [](std::int64_t batch, std::int64_t sequence) {
    LlamaConfig config = sized(llama_preset("llama-7b").value(), batch, sequence);
    config.kv_heads = 3;
    return build_llama(config);
  };
  const auto t5 = [](std::int64_t batch, std::int64_t sequence) {
    T5Config config = sized(t5_preset("t5-small").value(), batch, sequence);
    config.target_sequence = 28;
    config.decoder_layers = 2;
    config.head_width = 40;
    return build_t5(config);
  };
  const auto lstm = [](std::int64_t batch, std::int64_t steps) {
    LstmConfig config;
    config.vocabulary = 500;
    config.embedding = config.hidden = 72;
    config.batch = batch;
    config.steps = steps;
    return build_lstm(config);
  };
  const auto unfused = [](std::int64_t batch, std::int64_t) {
    LstmConfig config;
    config.form = RecurrentForm::kUnfused;
    config.vocabulary = 500;
    config.embedding = config.hidden = 72;
    config.batch = batch;
    config.steps = 7;
    return build_lstm(config);
  };
  const auto seq2seq = [](std::int64_t batch, std::int64_t) {
    Seq2seqConfig config;
    config.source_vocabulary = config.target_vocabulary = 500;
    config.embedding = config.hidden = config.attention = 72;
    config.source_steps = 7;
    config.target_steps = 5;
    config.batch = batch;
    return build_seq2seq(config);
  };
  const auto deepspeech2 = [](std::int64_t batch, std::int64_t) {
    Deepspeech2Config config;
    config.layers = 2;
    config.hidden = 72;
    config.batch = batch;
    return build_deepspeech2(config);
  };
  const auto of = [](auto preset, auto build) {
    return [preset, build](std::int64_t batch, std::int64_t sequence) {
      return build(sized(preset, batch, sequence));
    };
  };
  return {
      {"bert", of(bert_preset("bert-base").value(), build_bert)},
      {"gpt", gpt(Attention::kEager)},
      {"gpt, efficient attention", gpt(Attention::kEfficient)},
      {"gpt, flash attention", gpt(Attention::kFlash)},
      {"opt", of(opt_preset("opt-1.3b").value(), build_opt)},
      {"llama", llama},
      {"encoder", encoder},
      {"t5", t5},
      {"lstm", lstm},
      {"unfused lstm", unfused, false},
      {"seq2seq", seq2seq, false},
      {"deepspeech2", deepspeech2, false},
      {"mlp",
       [](std::int64_t batch, std::int64_t) {
         MlpConfig config = mlp_preset("mnist").value();
         config.batch = batch;
         return build_mlp(config);
       },
       false},
      {"resnet18",
       [](std::int64_t batch, std::int64_t) {
         ResnetConfig config = resnet_preset("resnet18").value();
         config.batch = batch;
         return build_resnet(config);
       },
       false},
      {"wgan",
       [](std::int64_t batch, std::int64_t) {
         WganConfig config = wgan_preset("wgan32").value();
         config.batch = batch;
         return build_wgan(config);
       },
       false},
  };
}

// Sums of gradients over equal indices are made in pieces, whose number is a rounded fraction of
// the lookups: it follows in proportion and may round otherwise.
bool is_scratch_of_sums(const ExecutionGraph& graph, const Node& node) {
  if (node.parent < 0 || graph.name(node) != "aten::empty") return false;
  const Node& parent = graph.nodes[static_cast<std::size_t>(node.parent)];
  return graph.name(parent) == "aten::embedding_dense_backward";
}

void expect_equal(const Result<ExecutionGraph>& rewritten, const Result<ExecutionGraph>& built) {
  ASSERT_TRUE(rewritten) << rewritten.error().message;
  ASSERT_TRUE(built) << built.error().message;
  const auto comparison = compare_graphs(*rewritten, *built, {.leave_out = is_scratch_of_sums});
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(SizesOfModels, AnotherBatchIsTheOneBuilt) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const auto graph = model.build(kBatch, kSequence);
    ASSERT_TRUE(graph) << graph.error().message;
    expect_equal(set_batch_size(*graph, {.batch = kOtherBatch}),
                 model.build(kOtherBatch, kSequence));
  }
}

TEST(SizesOfModels, AnotherSequenceIsTheOneBuilt) {
  for (const Model& model : models()) {
    if (!model.has_sequence) continue;
    SCOPED_TRACE(model.name);
    const auto graph = model.build(kBatch, kSequence);
    ASSERT_TRUE(graph) << graph.error().message;
    // A decoder has a length of its own: T5's has to be told apart.
    const std::int64_t current = model.name == "t5" ? kSequence : 0;
    expect_equal(set_sequence_length(*graph, {.length = kOtherSequence, .current = current}),
                 model.build(kBatch, kOtherSequence));
  }
}

TEST(SizesOfModels, ThereAndBackGivesTheSameBytes) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const ExecutionGraph graph = model.build(kBatch, kSequence).value();
    const auto there = set_batch_size(graph, {.batch = 2 * kBatch});
    ASSERT_TRUE(there) << there.error().message;
    const auto back = set_batch_size(*there, {.batch = kBatch});
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(execution_graph_json(*back) == execution_graph_json(graph));
  }
}

TEST(SizesOfModels, BatchAndSequenceCommute) {
  for (const Model& model : models()) {
    if (!model.has_sequence || model.name == "t5") continue;
    SCOPED_TRACE(model.name);
    const ExecutionGraph graph = model.build(kBatch, kSequence).value();
    const auto batch_first = set_sequence_length(
        set_batch_size(graph, {.batch = kOtherBatch}).value(), {.length = kOtherSequence});
    const auto sequence_first = set_batch_size(
        set_sequence_length(graph, {.length = kOtherSequence}).value(), {.batch = kOtherBatch});
    expect_equal(batch_first, sequence_first);
  }
}

}  // namespace rewrite_sizes_of_models_test
}  // namespace perfmodel
