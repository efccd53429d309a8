#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Bytes of GPU memory that one process holds however large its batch is, by purpose.
struct StaticMemory {
  double parameters = 0;       ///< read by the forward pass: weights, buffers, masks
  double tables = 0;           ///< the same, if only lookups read it
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

/// Sums up the first step of `graph` (`storage_lifetimes`): storages from outside of the step and
/// gradients that it keeps. A sparse gradient has no storage. A batch that is on the GPU before the
/// step begins counts as a parameter.
///
/// Leaves out activations, workspaces, the allocator's reserve and the CUDA context.
StaticMemory static_memory(const ExecutionGraph& graph);
/// `bytes`: of each storage, in their place.
StaticMemory static_memory(const StorageLifetimes& lifetimes, std::span<const std::int64_t> bytes);

}  // namespace perfmodel
