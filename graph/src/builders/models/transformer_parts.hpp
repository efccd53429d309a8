#pragma once

#include <functional>
#include <limits>

#include "config_checks.hpp"
#include "core/decoder_table.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/result.hpp"
#include "training_step.hpp"

namespace perfmodel {

/// `torch.finfo(torch.float32).min`: masks replace scores by it.
inline constexpr double kLowestFloat = std::numeric_limits<float>::lowest();

struct LinearWeights {
  TensorRef weight, bias;  // the bias may not exist
};
struct NormWeights {
  TensorRef weight, bias;  // no bias: root mean square
};

LinearWeights make_linear(TrainingStep& step, std::int64_t in, std::int64_t out, bool bias = true);
NormWeights make_layer_norm(TrainingStep& step, std::int64_t width);

TensorRef linear(AutogradTape& tape, TensorRef x, const LinearWeights& weights);
TensorRef layer_norm(AutogradTape& tape, TensorRef x, const NormWeights& weights, double eps);

/// [B, S, H * D] -> [B, H, S, D] by a view and a permutation or, as newer models write it, a
/// transposition.
TensorRef split_heads(AutogradTape& tape, TensorRef x, std::int64_t heads, bool by_transpose);
/// [B, H, S, D] -> [B, S, H * D], which copies.
TensorRef join_heads(AutogradTape& tape, TensorRef x, bool by_transpose);

/// `x[:, start:end]` of one axis like Python's index expression: no op if everything is taken.
TensorRef index_range(AutogradTape& tape, TensorRef x, int dim, std::int64_t start,
                      std::int64_t end);
/// The ":" of an index expression, which is an op.
TensorRef index_all(AutogradTape& tape, TensorRef x, int dim);

/// 0 if a token may be looked at, else the lowest number: [B, 1, S, S], as HuggingFace's decoders
/// make it (`_make_causal_mask`).
TensorRef causal_mask(AutogradTape& tape, std::int64_t batch, std::int64_t length);

/// `shift_tokens_right(labels)`, [B, S]: a decoder reads the labels one place to the right, a start
/// token first.
TensorRef shift_right(AutogradTape& tape, TensorRef labels);

/// One step of a model that reads tokens [B, S] and writes `targets` labels per sample [B, T].
ExecutionGraph run_on_tokens(
    TrainingStep& step, const TransformerConfig& config, std::int64_t targets,
    const std::function<TensorRef(TensorRef tokens, TensorRef labels)>& loss);

/// `FusedAttention` with the kernel of the config; eager attention is not one.
TensorRef fused_attention(AutogradTape& tape, TransformerConfig::Attention attention, TensorRef q,
                          TensorRef k, TensorRef v, double dropout, bool causal, TensorRef mask);

/// Cross entropy of all tokens: scores [B, S, V] against labels [B, S]. With `shifted`, every token
/// is to predict the next one, and the last score goes unused.
TensorRef token_loss(AutogradTape& tape, TensorRef scores, TensorRef labels, bool shifted,
                     double label_smoothing = 0);

/// The names of the decoders of a family that have presets.
std::vector<std::string_view> decoder_presets(std::string_view family);
/// Gives a config a batch of 1 and the sizes of a preset that all transformers have; the rest is in
/// the row. Errors: an unknown name (`what` says what was expected).
Result<DecoderRow> take_decoder(TransformerConfig& config, std::string_view family,
                                std::string_view what, std::string_view name);

/// Errors of sizes that no model can have: not positive, hidden not a multiple of heads, more
/// activations or weights than 2^60.
Result<void> check_transformer(const TransformerConfig& config);
/// Error of a sequence that is longer than the positions.
Result<void> check_positions(const TransformerConfig& config);
/// Error of a sequence too short to have a next token.
Result<void> check_next_token(const TransformerConfig& config);

}  // namespace perfmodel
