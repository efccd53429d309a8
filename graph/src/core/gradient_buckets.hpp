#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perfmodel {

/// A gradient as PyTorch's DistributedDataParallel sees it when it becomes ready.
struct BucketedGradient {
  double bytes = 0;
  std::int32_t group = 0;  ///< gradients of different groups (dtype, device) never share a bucket
  bool sparse = false;     ///< embedding with sparse gradients: a bucket of its own
};

/// Cuts gradients, given in the order of readiness, into the buckets that are reduced together; the
/// positions in each bucket, buckets in the order in which they are launched.
///
/// Each group fills its own bucket, which closes once its bytes reach the limit (so it may exceed
/// it by one gradient): `first_limit` for the group's first one, `limit` for the others. Buckets
/// are launched in the order of closing; unfinished ones follow, by first gradient. A sparse
/// gradient is a closed bucket at once.
///
/// Source: PyTorch `compute_bucket_assignment_by_size` as called when buckets are rebuilt from the
/// observed order.
std::vector<std::vector<std::size_t>> gradient_buckets(std::span<const BucketedGradient> gradients,
                                                       double first_limit, double limit);

}  // namespace perfmodel
