#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Bytes of GPU memory that one process holds however large its batch is, by purpose.
struct StaticMemory {
  double parameters = 0;       ///< what the forward pass reads: weights, buffers, masks
  double tables = 0;           ///< the same, where lookups alone read it
  double gradients = 0;        ///< dense ones: lookups with sparse gradients have none
  double optimizer_state = 0;  ///< momenta, and master weights that the forward pass does not read
  double other = 0;            ///< met first in the backward pass: buckets of reducers, scales

  double total() const { return parameters + tables + gradients + optimizer_state + other; }
  /// Names as reports have them.
  std::array<std::pair<std::string_view, double>, 5> by_purpose() const {
    return {{{"parameters", parameters},
             {"tables", tables},
             {"gradients", gradients},
             {"optimizer_state", optimizer_state},
             {"other", other}}};
  }
};

/// Of the first step of `graph`, recorded or built: the storages that the step takes from outside,
/// each counted once, and the gradients that it keeps.
///
/// A storage is taken from outside if an op reads it before any op has made it. Views count as
/// their storage, whose size is as far as the tensors from outside reach into it. Gradients that
/// the step makes anew (zero_grad with set_to_none) are those that AccumulateGrad keeps; a sparse
/// gradient has no storage. Of FBGEMM's lookups, what lies in host memory (uvm) is left out. Where
/// a batch lies on the GPU before the step begins, it counts as a parameter.
///
/// Not counted: activations, workspaces, what the allocator and the CUDA context take.
StaticMemory static_memory(const ExecutionGraph& graph);

}  // namespace perfmodel
