#pragma once

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_sizes.hpp"

namespace perfmodel {

/// Equal layers of a decoder between its embeddings and its loss, **as one rank of a parallel job
/// holds them**: with the rank's own heads, widths, experts, vocabulary and tokens. The graph has
/// no communication; if a group splits the residual stream, gathers and scatters are written as the
/// copies that they leave in memory.
///
/// Queries, keys and values come from one product, gate and up from another; experts' rows are
/// gathered forward and summed backward. `fused`: the kernels of Megatron Core with
/// Transformer Engine: activation and product in one kernel, rotary positions in one, keys and
/// values shared by heads without copies. Otherwise PyTorch's own ops.
struct DecoderLayersConfig : TransformerConfig {
  enum class Mixer { kAttention, kLatent, kStateSpace, kDeltaNet, kNone } mixer = Mixer::kAttention;
  enum class FeedForward { kDense, kExperts, kNone } inner = FeedForward::kDense;
  std::int64_t kv_heads = 0, head_width = 0;
  std::int64_t window = 0;   ///< tokens that attention looks back; 0: all
  bool chunked = false;      ///< attention does not leave chunks of `window` tokens instead
  bool gated_heads = false;  ///< each number of attention's result is multiplied by a gate
  LatentAttentionSizes latent;
  StateSpaceSizes states;
  bool gated = true;  ///< SiLU(gate) * up; false: one product, then its square of ReLU
  bool tied = false;
  bool biases = false;
  bool fused = true;

  // Experts. `experts.experts` are routed among, `held` lie on this rank and get `rows`.
  ExpertsConfig experts;
  std::int64_t held = 0, rows = 0;
  std::int64_t shared_width = 0;  ///< width of the expert that takes every token; 0: none
  std::int64_t expert_input = 0;  ///< input width of experts (LatentMoE); 0: hidden

  LoraConfig lora;
  /// Ranks that share the residual stream by tokens: norms and sums work on 1/parts of `sequence`.
  std::int64_t residual_parts = 1;
};

/// One training step of them. Errors: sizes below 1 or that do not divide.
Result<ExecutionGraph> build_decoder_layers(const DecoderLayersConfig& config);

}  // namespace perfmodel
