#pragma once

#include <vector>

#include "autograd_tape.hpp"

namespace perfmodel {

// Tensors that fall apart into parts, and parts that become one tensor again.

/// One view per index of `dim`, without that axis.
std::vector<TensorRef> unbind(AutogradTape& tape, TensorRef x, int dim);

/// Equal parts along `dim`. kViews: what `x.chunk()` gives in Python; kUnsafe: what PyTorch's own
/// cells call, which may change the parts in place.
enum class ChunkKind { kViews, kUnsafe };
std::vector<TensorRef> chunk(AutogradTape& tape, TensorRef x, int parts, int dim, ChunkKind kind);

/// Equal tensors side by side along a new axis `dim` that is not the last one.
TensorRef stack(GraphBuilder& graph, const std::vector<TensorRef>& parts, int dim,
                std::int64_t sequence = -1);
TensorRef stack(AutogradTape& tape, const std::vector<TensorRef>& parts, int dim);

}  // namespace perfmodel
