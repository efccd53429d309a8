#include "transformer_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "builders/emit/ops.hpp"
#include "builders/emit/optimizer_settings.hpp"

namespace perfmodel {
namespace {

constexpr int kIgnoredLabel = -100;  // label that has no loss

}  // namespace

LinearWeights make_linear(TrainingStep& step, std::int64_t in, std::int64_t out, bool bias) {
  const TensorRef weight = step.parameter({out, in});
  return {weight, bias ? step.parameter({out}) : TensorRef{}};
}

NormWeights make_layer_norm(TrainingStep& step, std::int64_t width) {
  const TensorRef weight = step.parameter({width});
  return {weight, step.parameter({width})};
}

TensorRef linear(AutogradTape& tape, TensorRef x, const LinearWeights& weights) {
  return linear(tape, x, weights.weight, weights.bias);
}

TensorRef layer_norm(AutogradTape& tape, TensorRef x, const NormWeights& weights, double eps) {
  return layer_norm(tape, x, weights.weight, weights.bias, eps);
}

TensorRef split_heads(AutogradTape& tape, TensorRef x, std::int64_t heads, bool by_transpose) {
  const Shape shape = tape.graph().shape(x);
  const TensorRef split = view(tape, x, {shape[0], shape[1], heads, shape[2] / heads});
  return by_transpose ? transpose(tape, split, 1, 2) : permute(tape, split, {0, 2, 1, 3});
}

TensorRef join_heads(AutogradTape& tape, TensorRef x, bool by_transpose) {
  const Shape shape = tape.graph().shape(x);
  const TensorRef turned = by_transpose ? transpose(tape, x, 1, 2) : permute(tape, x, {0, 2, 1, 3});
  return view(tape, contiguous(tape, turned), {shape[0], shape[2], shape[1] * shape[3]});
}

TensorRef index_range(AutogradTape& tape, TensorRef x, int dim, std::int64_t start,
                      std::int64_t end) {
  const std::int64_t size = tape.graph().shape(x)[axis_of(tape.graph(), x, dim)];
  return start == 0 && end == size ? x : slice(tape, x, dim, start, end);
}

TensorRef index_all(AutogradTape& tape, TensorRef x, int dim) {
  return slice(tape, x, dim, 0, kSliceEnd);
}

TensorRef causal_mask(AutogradTape& tape, std::int64_t batch, std::int64_t length) {
  GraphBuilder& graph = tape.graph();
  const TensorRef future = full(graph, {length, length}, kLowestFloat);
  const TensorRef line = arange(graph, length);
  const TensorRef next = view(tape, add(tape, line, 1), {length, 1});
  const TensorRef past = pointwise_result(graph, {line, next}, DType::kBool);
  graph.leaf_op("aten::lt.Tensor", {line, next}, {past}, tape.sequence());
  graph.leaf_op("aten::masked_fill_.Scalar", {future, past, 0}, {future}, tape.sequence());
  TensorRef causal = unsqueeze(tape, unsqueeze(tape, future, 0), 1);
  causal = index_all(tape, index_all(tape, causal, 2), 3);
  return expand(tape, causal, {batch, 1, length, length});
}

TensorRef shift_right(AutogradTape& tape, TensorRef labels) {
  GraphBuilder& graph = tape.graph();
  const TensorRef made = new_zeros(graph, labels, graph.shape(labels));
  const TensorRef source = slice(tape, labels, 1, 0, -1);
  const TensorRef copied = clone(graph, source, tape.sequence());
  copy(graph, slice(tape, made, 1, 1, kSliceEnd), copied);
  const TensorRef first = select(tape, made, 1, 0);
  fill(graph, first, 0, tape.sequence());
  const TensorRef padded = graph.new_tensor(DType::kBool, graph.shape(made));
  graph.leaf_op("aten::eq.Scalar", {made, kIgnoredLabel}, {padded}, tape.sequence());
  graph.leaf_op("aten::masked_fill_.Scalar", {made, padded, 0}, {made}, tape.sequence());
  return made;
}

ExecutionGraph run_on_tokens(
    TrainingStep& step, const TransformerConfig& config, std::int64_t targets,
    const std::function<TensorRef(TensorRef tokens, TensorRef labels)>& loss) {
  TensorRef tokens, labels;
  TrainingStep::Parts parts;
  parts.inputs = [&] {
    tokens = step.input(DType::kInt64, {config.batch, config.sequence});
    labels = step.input(DType::kInt64, {config.batch, targets});
  };
  parts.forward = [&] { return loss(tokens, labels); };
  return step.run(parts);
}

TensorRef fused_attention(AutogradTape& tape, TransformerConfig::Attention attention, TensorRef q,
                          TensorRef k, TensorRef v, double dropout, bool causal, TensorRef mask) {
  FusedAttention options;
  if (attention == TransformerConfig::Attention::kFlash) {
    options.kernel = FusedAttention::Kernel::kFlash;
  } else {
    options.mask = mask;  // flash has none: batches without padding need none
  }
  options.dropout = dropout;
  options.causal = causal;
  return fused_attention(tape, q, k, v, options);
}

TensorRef token_loss(AutogradTape& tape, TensorRef scores, TensorRef labels, bool shifted,
                     double label_smoothing) {
  if (shifted) {
    scores = index_all(tape, slice(tape, scores, 1, 0, -1), 2);
    scores = contiguous(tape, scores);
    labels = contiguous(tape, slice(tape, labels, 1, 1, kSliceEnd));
  }
  const std::int64_t classes = tape.graph().shape(scores).back();
  const TensorRef rows = cast(tape, view(tape, scores, {-1, classes}), DType::kFloat32);
  return cross_entropy(tape, rows, view(tape, labels, {-1}), label_smoothing);
}

std::vector<std::string_view> decoder_presets(std::string_view family) {
  return preset_names(built_decoders(family));
}

Result<DecoderRow> take_decoder(TransformerConfig& config, std::string_view family,
                                std::string_view what, std::string_view name) {
  for (const DecoderRow& row : built_decoders(family)) {
    if (row.name != name) continue;
    config.name = name;
    config.layers = row.layers;
    config.hidden = row.hidden;
    config.heads = row.heads;
    config.feed_forward = row.feed_forward;
    config.vocabulary = row.vocabulary;
    config.sequence = row.sequence;
    config.batch = 1;
    return row;
  }
  return unknown_preset(what, name, decoder_presets(family));
}

Result<void> check_transformer(const TransformerConfig& config) {
  const std::array<std::pair<std::string_view, std::int64_t>, 7> sizes = {
      {{"batch", config.batch},
       {"sequence", config.sequence},
       {"layers", config.layers},
       {"hidden", config.hidden},
       {"heads", config.heads},
       {"feed-forward", config.feed_forward},
       {"vocabulary", config.vocabulary}}};
  for (const auto& [what, size] : sizes) {
    if (auto good = expect_at_least(what, 1, size); !good) return good;
  }
  if (auto good = expect_layers("layers", config.layers); !good) return good;
  if (config.hidden % config.heads != 0) {
    return bad_config(fmt::format("hidden: expected a multiple of the {} heads, found {}",
                                  config.heads, config.hidden));
  }
  if (auto good = expect_probability("dropout", config.dropout); !good) return good;
  const TrainingOptions& step = config.training;
  if (auto good = check_optimizer(step.optimizer, step.implementation, step.pytorch); !good) {
    return good;
  }
  const double tokens = static_cast<double>(config.batch) * static_cast<double>(config.sequence);
  const double widest = static_cast<double>(
      std::max({config.hidden * 3, config.feed_forward, config.vocabulary,
                config.heads * std::min(config.sequence, kMostElements / config.heads)}));
  const double weights = static_cast<double>(config.hidden) *
                         static_cast<double>(std::max(config.vocabulary, config.feed_forward));
  if (std::max(tokens * widest, weights) > static_cast<double>(kMostElements)) {
    return bad_config("sizes: expected tensors of less than 2^60 elements, found more");
  }
  return {};
}

Result<void> check_positions(const TransformerConfig& config) {
  if (config.sequence <= config.positions) return {};
  return bad_config(fmt::format("sequence: expected at most the {} positions, found {}",
                                config.positions, config.sequence));
}

Result<void> check_next_token(const TransformerConfig& config) {
  if (config.sequence >= 2) return {};
  return bad_config(fmt::format(
      "sequence: expected at least 2 (a token and the next one), found {}", config.sequence));
}

}  // namespace perfmodel
