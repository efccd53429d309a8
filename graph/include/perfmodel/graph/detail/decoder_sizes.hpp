#pragma once

#include <cstdint>

namespace perfmodel {

/// Feed-forward layers of several experts, of which each token takes a few.
struct DecoderExperts {
  std::int64_t experts = 0;       ///< routed ones of a layer; 0: layers are dense
  std::int64_t top_k = 2;         ///< experts per token
  std::int64_t hidden = 0;        ///< width inside of an expert; 0: `feed_forward`
  std::int64_t shared = 0;        ///< width inside of the expert that takes every token; 0: none
  std::int64_t input = 0;         ///< input width of routed experts (LatentMoE); 0: the model's
  std::int64_t dense_layers = 0;  ///< number of dense layers at the beginning
  bool gated_shared = false;      ///< the shared one's result is multiplied by a gate per token
};

/// Attention through a latent vector per token (DeepSeek-V2, Liu et al. 2024, section 2.1): queries
/// and keys with values come from narrow projections; a part of each head turns with its position.
struct LatentAttentionSizes {
  std::int64_t query_rank = 0;  ///< 0: queries are projected at once
  std::int64_t key_value_rank = 0;
  std::int64_t plain_width = 0, rotary_width = 0;  ///< per head of queries and keys
  std::int64_t value_width = 0;
};

/// Mamba-2 (Dao and Gu 2024): the state-space dual in chunks of tokens. Of a gated DeltaNet (Yang
/// et al. 2024): heads of values; `groups` are heads of queries and keys, `state` is their width.
struct StateSpaceSizes {
  std::int64_t heads = 0, head_width = 0;
  std::int64_t groups = 1, state = 0;
  std::int64_t chunk = 128;
};

}  // namespace perfmodel
