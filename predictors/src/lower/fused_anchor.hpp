#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perfmodel {

/// A node's kernel_backend as `rewrite_post_scheduling_fusion` writes it,
/// "post_scheduling:READ:WRITTEN:_fused_gelu_add": its last READ inputs and WRITTEN outputs belong
/// to pointwise ops that run in the kernel of the op.
struct FusedAnchor {
  std::uint32_t read = 0, written = 0;
  std::string_view ops;  ///< "_fused_gelu_add"

  /// Nothing: another backend, or text that no rewrite writes.
  static std::optional<FusedAnchor> parse(std::string_view backend);
};

}  // namespace perfmodel
