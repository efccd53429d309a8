#include "perfmodel/graph/build_transformers.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "builders/emit/ops.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kBertEps = 1e-12;
constexpr std::int64_t kClasses = 2;
constexpr double kMasked = std::numeric_limits<float>::lowest();

struct BertLayer {
  LinearWeights query, key, value, attention_out, wide, narrow;
  NormWeights attention_norm, norm;
};

class BertBuilder : public ModelBuilder<BertConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    TensorRef tokens, labels, classes;
    TrainingStep::Parts parts;
    parts.inputs = [&] {
      tokens = step_.input(DType::kInt64, {config_.batch, config_.sequence});
      if (predicts_tokens()) {
        labels = step_.input(DType::kInt64, {config_.batch, config_.sequence});
      }
      if (has_classes()) classes = step_.input(DType::kInt64, {config_.batch});
      if (answers()) {
        for (TensorRef& end : ends_) end = step_.input(DType::kInt64, {config_.batch});
      }
    };
    parts.forward = [&] { return head(encode(tokens), labels, classes); };
    return step_.run(parts);
  }

 private:
  using Head = BertConfig::Head;

  bool predicts_tokens() const {
    return config_.head != Head::kPooler && config_.head != Head::kClassifier && !answers();
  }
  bool answers() const { return config_.head == Head::kQuestionAnswering; }
  bool has_classes() const {
    return config_.head == Head::kClassifier || config_.head == Head::kPreTraining;
  }
  bool has_pooler() const { return config_.head == Head::kPooler || has_classes(); }

  // In the order in which the modules register them.
  void make_parameters() {
    const std::int64_t width = config_.hidden;
    words_ = step_.parameter({config_.vocabulary, width});
    positions_ = step_.parameter({config_.positions, width});
    types_ = step_.parameter({config_.token_types, width});
    embedding_norm_ = make_layer_norm(step_, width);
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      BertLayer& layer = layers_.emplace_back();
      for (LinearWeights* weights :
           {&layer.query, &layer.key, &layer.value, &layer.attention_out}) {
        *weights = make_linear(step_, width, width);
      }
      layer.attention_norm = make_layer_norm(step_, width);
      layer.wide = make_linear(step_, width, config_.feed_forward);
      layer.narrow = make_linear(step_, config_.feed_forward, width);
      layer.norm = make_layer_norm(step_, width);
    }
    if (has_pooler()) pooler_ = make_linear(step_, width, width);
    if (predicts_tokens()) {
      decoder_ = {words_, step_.parameter({config_.vocabulary})};
      transform_ = make_linear(step_, width, width);
      transform_norm_ = make_layer_norm(step_, width);
    }
    if (has_classes() || answers()) classifier_ = make_linear(step_, width, kClasses);
  }

  TensorRef buffer(std::int64_t columns) { return graph_.new_tensor(DType::kInt64, {1, columns}); }

  // `buffer[:, :S]`
  TensorRef first_columns(TensorRef x) {
    return index_range(tape_, index_all(tape_, x, 0), 1, 0, config_.sequence);
  }

  // 0 if a token may be looked at, else the lowest number; [B, 1, 1, S].
  TensorRef additive_mask(TensorRef mask) {
    TensorRef wide = unsqueeze(tape_, unsqueeze(tape_, index_all(tape_, mask, 0), 1), 2);
    wide = index_all(tape_, wide, 3);
    to_same_dtype(graph_, wide, tape_.sequence());
    return mul(tape_, subtract_from(tape_, 1.0, wide), kMasked);
  }

  TensorRef encode(TensorRef tokens) {
    const TensorRef mask = ones(graph_, DType::kFloat32, {config_.batch, config_.sequence});
    const TensorRef types =
        expand(tape_, first_columns(buffer(config_.positions)), {config_.batch, config_.sequence});
    const TensorRef additive = additive_mask(mask);
    const TensorRef positions = first_columns(buffer(config_.positions));
    const TensorRef words = embedding_lookup(tape_, words_, tokens, 0);
    TensorRef x = add(tape_, words, embedding_lookup(tape_, types_, types));
    add_in_place(tape_, x, embedding_lookup(tape_, positions_, positions));
    x = dropout(tape_, layer_norm(tape_, x, embedding_norm_, kBertEps), config_.dropout);
    for (const BertLayer& layer : layers_) x = encode(layer, x, additive);
    return x;
  }

  TensorRef encode(const BertLayer& layer, TensorRef x, TensorRef mask) {
    const TensorRef attended = dropout(
        tape_, linear(tape_, attention(layer, x, mask), layer.attention_out), config_.dropout);
    x = layer_norm(tape_, add(tape_, attended, x), layer.attention_norm, kBertEps);
    const TensorRef wide = gelu(tape_, linear(tape_, x, layer.wide));
    const TensorRef narrow = dropout(tape_, linear(tape_, wide, layer.narrow), config_.dropout);
    return layer_norm(tape_, add(tape_, narrow, x), layer.norm, kBertEps);
  }

  TensorRef heads(TensorRef x) { return split_heads(tape_, x, config_.heads, false); }

  TensorRef attention(const BertLayer& layer, TensorRef x, TensorRef mask) {
    const TensorRef mixed = linear(tape_, x, layer.query);
    const TensorRef key = heads(linear(tape_, x, layer.key));
    const TensorRef value = heads(linear(tape_, x, layer.value));
    const TensorRef query = heads(mixed);
    if (config_.attention != TransformerConfig::Attention::kEager) {
      const Shape shape = {config_.batch, 1, config_.sequence, config_.sequence};
      const TensorRef out = fused_attention(tape_, config_.attention, query, key, value,
                                            config_.dropout, false, expand(tape_, mask, shape));
      return join_heads(tape_, out, true);
    }
    const double root = std::sqrt(static_cast<double>(config_.hidden / config_.heads));
    TensorRef scores = matmul(tape_, query, transpose(tape_, key, -1, -2));
    scores = add(tape_, div(tape_, scores, root), mask);
    const TensorRef weights = dropout(tape_, softmax(tape_, scores, -1), config_.dropout);
    return join_heads(tape_, matmul(tape_, weights, value), false);
  }

  TensorRef pool(TensorRef x) {
    const TensorRef first = select(tape_, index_all(tape_, x, 0), 1, 0);
    return tanh(tape_, linear(tape_, first, pooler_));
  }

  TensorRef class_loss(TensorRef scores, TensorRef classes) {
    const TensorRef rows = view(tape_, scores, {-1, kClasses});
    return cross_entropy(tape_, rows, view(tape_, classes, {-1}));
  }

  // Tokens are the classes: one score each for the first and for the last of an answer.
  TensorRef answer_loss(TensorRef x) {
    const TensorRef scores = linear(tape_, x, classifier_);
    const auto loss = [&](std::int64_t end) {
      return cross_entropy(tape_, select(tape_, scores, 2, end), ends_[end]);
    };
    const TensorRef first = loss(0);
    return div(tape_, add(tape_, first, loss(1)), 2.0);
  }

  TensorRef head(TensorRef x, TensorRef labels, TensorRef classes) {
    if (answers()) return answer_loss(x);
    TensorRef pooled;
    if (has_pooler()) pooled = pool(x);
    if (config_.head == Head::kPooler) return mean(tape_, pooled);
    if (config_.head == Head::kClassifier) {
      pooled = dropout(tape_, pooled, config_.dropout);
      return class_loss(linear(tape_, pooled, classifier_), classes);
    }
    const TensorRef transformed =
        layer_norm(tape_, gelu(tape_, linear(tape_, x, transform_)), transform_norm_, kBertEps);
    const TensorRef scores = linear(tape_, transformed, decoder_);
    TensorRef class_scores;
    if (has_classes()) class_scores = linear(tape_, pooled, classifier_);
    const TensorRef loss = token_loss(tape_, scores, labels, config_.head == Head::kCausalLm);
    return has_classes() ? add(tape_, loss, class_loss(class_scores, classes)) : loss;
  }

  TensorRef words_, positions_, types_;
  NormWeights embedding_norm_, transform_norm_;
  std::vector<BertLayer> layers_;
  LinearWeights pooler_, transform_, decoder_, classifier_;
  std::array<TensorRef, 2> ends_;  // ends of answers, one per sample
};

}  // namespace

Result<BertConfig> bert_preset(std::string_view name) {
  if (name != "bert-base" && name != "bert-large") {
    return unknown_preset("a BERT preset", name, {"bert-base", "bert-large"});
  }
  const bool large = name == "bert-large";
  BertConfig config;
  config.name = name;
  config.layers = large ? 24 : 12;
  config.hidden = large ? 1024 : 768;
  config.heads = large ? 16 : 12;
  config.feed_forward = 4 * config.hidden;
  config.vocabulary = 30522;
  config.positions = 512;
  return config;
}

Result<ExecutionGraph> build_bert(const BertConfig& config) {
  const auto good = all_good({check_transformer(config), check_positions(config),
                              expect_at_least("token types", 1, config.token_types)});
  if (!good) return Unexpected{good.error()};
  return BertBuilder(config).build();
}

}  // namespace perfmodel
