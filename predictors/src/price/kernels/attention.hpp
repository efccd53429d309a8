#pragma once

#include "price/terms.hpp"

namespace perfmodel::kernels {

/// Blocks and tiles of a fused attention kernel with known tiles.
struct AttentionBlocks {
  double groups = 0, rows = 0, tokens = 0;  ///< rows of a group; tokens of q that a tile holds
  double waves = 0, splits = 1;
  double n_q = 0, n_k = 0;  ///< tiles along the owned axis and the other
  AttentionGeneration kernel = AttentionGeneration::kFramework;  ///< which one runs
  bool paged = false;
  bool in_training = false;  ///< no kernel of servers
  AttentionTile tile;
};

/// Nothing for unfused attention, on vector units, and on architectures without a known kernel.
std::optional<AttentionBlocks> attention_blocks(const AttentionShape& shape, bool matrix_units,
                                                const Gpu& gpu);

}  // namespace perfmodel::kernels
