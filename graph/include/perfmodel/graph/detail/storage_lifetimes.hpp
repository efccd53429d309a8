#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Purposes of device memory, in the order of reports.
enum class MemoryPurpose : std::uint8_t {
  kWeights,      ///< parameters, tables, buffers, masks: there before the step, read in it
  kGradients,    ///< parameters' gradients, from the backward pass until zero_grad
  kOptimizer,    ///< momenta, master weights
  kActivations,  ///< made by the forward pass (copies of the batch too), read by the backward pass
  kTemporaries,  ///< made and freed on the way
  kWorkspace,    ///< libraries' workspaces
  kCommunication,  ///< buckets, gathered shards, buffers of NCCL
  kReserve,        ///< the context, and unused memory of the allocator
};
inline constexpr std::size_t kMemoryPurposes = 8;
std::string_view to_string(MemoryPurpose purpose);  ///< "weights", "gradients", ...

/// Bytes by purpose.
using MemoryByPurpose = std::array<double, kMemoryPurposes>;
inline double& at(MemoryByPurpose& bytes, MemoryPurpose purpose) {
  return bytes[static_cast<std::size_t>(purpose)];
}
inline double at(const MemoryByPurpose& bytes, MemoryPurpose purpose) {
  return bytes[static_cast<std::size_t>(purpose)];
}

/// One storage from the op that makes it to the last one that needs it.
struct StorageLifetime {
  /// Node index before the first or after the last of the step.
  static constexpr std::int32_t kBefore = -1, kBeyond = INT32_MAX;

  std::int64_t bytes = 0;  ///< asked for: not rounded by the allocator
  MemoryPurpose purpose = MemoryPurpose::kTemporaries;
  bool is_table = false;         ///< weights that lookups alone read
  std::int32_t made_by = -1;     ///< node; kBefore: there when the step begins
  std::int32_t freed_after = 0;  ///< last node that runs before it is freed; kBeyond: none
  /// A gradient that the next step frees: there from the beginning of the step until this node,
  /// too. kBefore: it is not.
  std::int32_t left_until = kBefore;
  std::uint32_t tensor = 0;  ///< the largest mention of it, into ExecutionGraph::tensors
};

/// The storages of one step on one device.
struct StorageLifetimes {
  std::vector<StorageLifetime>
      storages;  ///< those from outside first, then by the node that makes it
  GraphIteration step;
  std::int32_t forward_end = 0;  ///< node: the first of the backward pass, else the step's end
  std::int32_t optimizer_begin =
      0;  ///< node: the first of the optimizer's step, else the step's end
  bool has_backward = false;
  Device::Kind device = Device::Kind::kGpu;  ///< kCpu: no tensor of the step is on a GPU
  /// Names of ops with tensors that have no storage or no size, each once: what those hold is not
  /// counted.
  std::vector<std::string> without_sizes;
  std::int64_t uncounted_bytes = 0;  ///< sum over the ones with a known size
};

/// Lifetimes from the mentions of storages in the first step of `graph`, recorded or built.
///
/// - An id is one storage from the op that makes it to the next op that makes it anew: recorded ids
///   are addresses and are reused. Views and results in place belong to their storage.
/// - A storage is freed after the last op that mentions it. An autograd function holds its inputs
///   until it returns, as the engine does. A graph does not show Python variables that keep a
///   tensor longer.
/// - Storages that an op reads before any op has made them exist before the step and stay.
///   FBGEMM's tables in host memory (uvm) are left out.
/// - Gradients that AccumulateGrad keeps live until the next step's zero_grad sets them to none.
/// They
///   live on if no zero_grad is recorded, or in buffers that exist before the step.
/// - Without a backward pass, ops that autograd numbered keep the tensors that derivatives.yaml
/// names
///   (the op catalogue) until the step ends, like the forward pass of a training step.
StorageLifetimes storage_lifetimes(const ExecutionGraph& graph);

}  // namespace perfmodel
