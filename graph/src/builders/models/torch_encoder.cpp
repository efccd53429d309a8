#include "perfmodel/graph/build_transformers.hpp"

#include <cmath>
#include <vector>

#include "builders/emit/ops.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kEncoderEps = 1e-5;

struct EncoderLayer {
  LinearWeights projection, attention_out, wide, narrow;
  NormWeights first, second;
};

class TorchEncoder : public ModelBuilder<TransformerConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    TensorRef labels, tokens;
    TrainingStep::Parts parts;
    parts.inputs = [&] {
      tokens = step_.input(DType::kInt64, {config_.batch, config_.sequence});
      labels = step_.input(DType::kInt64, {config_.batch * config_.sequence});
    };
    parts.forward = [&] { return forward(tokens); };
    parts.loss = [&](TensorRef scores) { return cross_entropy(tape_, scores, labels); };
    return step_.run(parts);
  }

 private:
  void make_parameters() {
    const std::int64_t width = config_.hidden;
    embedding_ = step_.parameter({config_.vocabulary, width});
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      EncoderLayer& layer = layers_.emplace_back();
      layer.projection = make_linear(step_, width, 3 * width);
      layer.attention_out = make_linear(step_, width, width);
      layer.wide = make_linear(step_, width, config_.feed_forward);
      layer.narrow = make_linear(step_, config_.feed_forward, width);
      layer.first = make_layer_norm(step_, width);
      layer.second = make_layer_norm(step_, width);
    }
    head_ = make_linear(step_, width, config_.vocabulary);
  }

  TensorRef forward(TensorRef tokens) {
    TensorRef x = embedding_lookup(tape_, embedding_, tokens);
    for (const EncoderLayer& layer : layers_) {
      const TensorRef attended = dropout(tape_, attention(layer, x), config_.dropout);
      x = layer_norm(tape_, add(tape_, x, attended), layer.first, kEncoderEps);
      TensorRef wide = gelu(tape_, linear(tape_, x, layer.wide));
      wide = dropout(tape_, wide, config_.dropout);
      const TensorRef narrow = dropout(tape_, linear(tape_, wide, layer.narrow), config_.dropout);
      x = layer_norm(tape_, add(tape_, x, narrow), layer.second, kEncoderEps);
    }
    return view(tape_, linear(tape_, x, head_), {-1, config_.vocabulary});
  }

  // [S, B, H] seen as [B * heads, S, D].
  TensorRef heads(TensorRef x) {
    const Shape shape = {config_.sequence, config_.batch * config_.heads,
                         config_.hidden / config_.heads};
    return transpose(tape_, view(tape_, contiguous(tape_, x), shape), 0, 1);
  }

  TensorRef attention(const EncoderLayer& layer, TensorRef x) {
    const TensorRef by_time = transpose(tape_, x, 1, 0);
    const std::vector<TensorRef> parts =
        chunk(tape_, linear(tape_, by_time, layer.projection), 3, -1);
    std::vector<TensorRef> qkv;
    for (TensorRef part : parts) qkv.push_back(heads(part));
    const TensorRef scaled =
        div(tape_, qkv[0], std::sqrt(static_cast<double>(config_.hidden / config_.heads)));
    const TensorRef scores = bmm(tape_, scaled, transpose(tape_, qkv[1], -2, -1));
    const TensorRef weights = dropout(tape_, softmax(tape_, scores, -1), config_.dropout);
    const TensorRef mixed = transpose(tape_, bmm(tape_, weights, qkv[2]), 0, 1);
    const Shape rows = {config_.sequence * config_.batch, config_.hidden};
    const TensorRef out =
        linear(tape_, view(tape_, contiguous(tape_, mixed), rows), layer.attention_out);
    return transpose(tape_, view(tape_, out, {config_.sequence, config_.batch, config_.hidden}), 1,
                     0);
  }

  TensorRef embedding_;
  std::vector<EncoderLayer> layers_;
  LinearWeights head_;
};

}  // namespace

Result<ExecutionGraph> build_torch_encoder(const TransformerConfig& config) {
  if (auto good = check_transformer(config); !good) return Unexpected{good.error()};
  if (config.attention != TransformerConfig::Attention::kEager) {
    return fail(ErrorCode::kImpossible,
                "attention: expected eager for nn.TransformerEncoderLayer, found a fused kernel");
  }
  return TorchEncoder(config).build();
}

}  // namespace perfmodel
