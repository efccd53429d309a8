#pragma once

#include <string_view>

namespace perfmodel::suite {

/// Bytes of GPU memory that are held for one purpose ("weights", "gradients", "optimizer").
struct MemoryPurpose {
  std::string_view name;
  double bytes = 0;
};

}  // namespace perfmodel::suite
