#pragma once

#include <cstdint>
#include <vector>

#include "builders/emit/autograd_tape.hpp"
#include "builders/emit/jagged.hpp"

namespace perfmodel {

/// Sizes of a batch of TorchRec's random data set.
struct RandomBatchShape {
  std::int64_t batch = 0, dense_features = 0;
  std::vector<std::int64_t> lookups;  ///< per sparse feature, of the whole batch
};

struct Batch {
  TensorRef dense;    ///< [B, dense features]
  Jagged sparse;      ///< int32; lengths [F * B]
  TensorRef offsets;  ///< [F * B + 1]
  TensorRef labels;   ///< [B], int32

  std::vector<TensorRef> tensors() const {
    return {dense, sparse.values, sparse.lengths, offsets, labels};
  }
};

/// A batch that is on its device already; no op.
Batch batch_on_device(GraphBuilder& graph, const RandomBatchShape& shape);

/// Makes a batch on the host, copies it to pinned memory and from there to the GPU.
void copy_random_batch(AutogradTape& tape, const RandomBatchShape& shape);

/// The allocator learns that the current stream uses the batch too.
void record_stream(AutogradTape& tape, const std::vector<TensorRef>& tensors);

}  // namespace perfmodel
