#pragma once

#include <cstdint>

namespace perfmodel {

/// Sizes at which PyTorch's DistributedDataParallel closes its buckets of gradients, unless the
/// user sets a cap, which then holds for the first bucket, too.
inline constexpr std::int64_t kFirstBucketBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kBucketCapBytes = std::int64_t{25} << 20;

}  // namespace perfmodel
