#pragma once

#include <string>
#include <vector>

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_sizes.hpp"

namespace perfmodel {

/// The parts of a layer of a decoder between its residual sums.
struct DecoderLayerKind {
  enum class Mixer : std::uint8_t {
    kAttention,
    kLatent,
    kStateSpace,
    kDeltaNet,
    kNone
  } mixer = Mixer::kAttention;
  enum class Inner : std::uint8_t { kDense, kExperts, kNone } inner = Inner::kDense;
  bool slides = false;  ///< attention looks back a window alone

  bool attends() const { return mixer == Mixer::kAttention || mixer == Mixer::kLatent; }
};

/// "gated delta net, experts".
std::string to_string(const DecoderLayerKind& kind);

/// Layers of a decoder between its embeddings and its loss, whole or **as one rank of a parallel
/// job holds them**: with the rank's own heads, widths, experts, vocabulary and tokens. The graph
/// has no communication; if a group splits the residual stream, gathers and scatters are written as
/// the copies that they leave in memory.
///
/// Queries, keys and values come from one product, gate and up from another; experts' rows are
/// gathered forward and summed backward. `fused`: the kernels of Megatron Core with
/// Transformer Engine: activation and product in one kernel, rotary positions in one, keys and
/// values shared by heads without copies. Otherwise PyTorch's own ops.
struct DecoderLayersConfig : TransformerConfig {
  std::vector<DecoderLayerKind> kinds = {{}};  ///< the first layers; the others repeat them
  std::int64_t kv_heads = 0, head_width = 0;
  std::int64_t window = 0;   ///< tokens that layers which slide look back
  bool chunked = false;      ///< these do not leave chunks of `window` tokens instead
  bool sinks = false;        ///< scores of attention are written to memory, with a term of softmax
  bool gated_heads = false;  ///< each number of attention's result is multiplied by a gate
  LatentAttentionSizes latent;
  StateSpaceSizes states;
  bool rms_norm = true;  ///< false: layer norms
  bool gated = true;  ///< SiLU(gate) * up; false: one product, then the square of ReLU (GELU with
                      ///< layer norms)
  bool tied = false;
  bool biases = false;
  bool fused = true;

  // Experts. `experts.experts` are routed among, `held` lie on this rank and get `rows`. 0: all,
  // and the ops that sort the tokens of this process by expert.
  ExpertsConfig experts;
  std::int64_t held = 0, rows = 0;
  std::int64_t shared_width = 0;  ///< width of the expert that takes every token; 0: none
  bool gated_shared = false;      ///< its result is multiplied by a gate per token
  std::int64_t expert_input = 0;  ///< input width of experts (LatentMoE); 0: hidden

  /// Modules that each predict a token beyond the next (DeepSeek-V3, 2024, section 2.2): a layer
  /// like the last one, and the output layer again.
  std::int64_t next_tokens = 0;

  LoraConfig lora;
  /// Ranks that share the residual stream by tokens: norms and sums work on 1/parts of `sequence`.
  std::int64_t residual_parts = 1;
};

/// One training step of them. Errors: sizes below 1 or that do not divide.
Result<ExecutionGraph> build_decoder_layers(const DecoderLayersConfig& config);

}  // namespace perfmodel
