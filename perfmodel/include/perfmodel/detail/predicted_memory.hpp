#pragma once

#include <optional>
#include <string>

#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/detail/static_memory.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// GPU memory that one rank holds however large its batch is: a lower bound of what a step needs.
/// Activations, workspaces and what libraries take for themselves come on top.
struct PredictedMemory {
  StaticMemory held;  ///< bytes by purpose; with FSDP the shard of one rank
  double device_bytes =
      0;  ///< of the GPU: its size as sold in units of 2^30, what no driver exceeds

  double static_bytes() const { return held.total(); }
  bool fits() const { return static_bytes() <= device_bytes; }
};

/// `scaled`: how the graph was scaled out, if it was. FSDP divides everything by the ranks, unless
/// the graph reduces its gradients itself.
PredictedMemory predicted_memory(const StaticMemory& of_graph,
                                 const std::optional<ScaledOut>& scaled, const Gpu& gpu);

/// "1.2 GiB of 40 GiB: parameters 0.3, gradients 0.3, optimizer state 0.6".
std::string memory_text(const PredictedMemory& memory);

/// The warning about memory that cannot fit; empty if it does.
std::string memory_warning(const PredictedMemory& memory, const Gpu& gpu);

}  // namespace perfmodel
