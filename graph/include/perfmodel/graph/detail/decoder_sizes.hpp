#pragma once

#include <cstdint>

namespace perfmodel {

/// Attention through a latent vector per token (DeepSeek-V2, Liu et al. 2024, section 2.1): queries
/// and keys with values come from narrow projections; a part of each head turns with its position.
struct LatentAttentionSizes {
  std::int64_t query_rank = 0;  ///< 0: queries are projected at once
  std::int64_t key_value_rank = 0;
  std::int64_t plain_width = 0, rotary_width = 0;  ///< of a head of queries and keys
  std::int64_t value_width = 0;
};

/// Mamba-2 (Dao and Gu 2024): the state-space dual in chunks of tokens.
struct StateSpaceSizes {
  std::int64_t heads = 0, head_width = 0;
  std::int64_t groups = 1, state = 0;
  std::int64_t chunk = 128;
};

}  // namespace perfmodel
