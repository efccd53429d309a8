#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"

namespace perfmodel {

/// Regions of compiled code by their names: see CompiledCode.
struct CompiledNames {
  double launch_us = 0;                    ///< host time of a kernel's launch
  std::vector<bool> is_region, is_replay;  ///< by name
  bool has_replays = false;
  /// Inputs of a region, by autograd's number.
  std::unordered_map<std::int64_t, std::int32_t> tensors;
};

/// Host time of the code that torch.compile writes: it launches the kernels of a region from one
/// Python function, so that the terms of eager ops do not hold in it.
class CompiledCode {
 public:
  CompiledCode(const ExecutionGraph& graph, const CompiledNames& names)
      : graph_(graph), names_(names) {}

  /// Whether a top-level op is a region of compiled code or a captured graph. False, too, if the
  /// table knows it, whose T2 it gives, by the ops below it or by its name.
  bool runs(std::int32_t node, const OverheadTerm::Found& t2) const;

  /// Guards and wrappers before a region's first call; checks and results after its last one.
  OverheadTerm::Found before(std::int32_t region) const {
    return found(kBefore + kBeforePerTensor * entering(region));
  }
  OverheadTerm::Found after(std::int32_t region) const {
    return found(kAfterPerTensor * entering(region));
  }

  /// Between two calls of a region. Nothing: one launch of a captured graph makes both.
  std::optional<OverheadTerm::Found> between(std::int32_t node, std::int32_t next) const;

  /// The node of the captured graph around a node; -1: none.
  std::int32_t replay_around(std::int32_t node) const;

 private:
  /// Multiples of a kernel's launch, a measure of the host's speed: of the 7.5 us in
  /// reference.json. Read off gaps between calls in the traces of
  /// data/measurements/h100-sxm-80gb/gpt2-small-512.compile-b4, brought to the 18.8 ms that the
  /// host takes for a step without a profiler, and of h200-sxm-141gb/dlrm-*.compile-b2048 and
  /// gpt2-small-1024.bf16-*compile-b16, times 0.49: a DLRM's step without a profiler by its step
  /// with one. A region's own cost grows with the tensors that enter it, in both passes: least
  /// squares over 39, 43, 93 (the DLRMs) and 150 tensors (GPT-2).
  static constexpr double kBefore = 6, kBeforePerTensor = 0.30, kAfterPerTensor = 0.24;
  static constexpr double kTritonKernel =
      2.0;  ///< buffers, Triton's launcher: 1.8 on H200, 2.3 on H100
  static constexpr double kLibraryOp = 3.9;  ///< extern_kernels.mm(..., out=...), attention
  static constexpr double kSameOp = 0.7;     ///< several launches of one library op
  /// What a library op calls: its time beyond a product's in the traces of H200 by the ops below
  /// it, 3.3 us traced for gradients of bags and 6.9 for flash attention.
  static constexpr double kOpOfLibrary = 0.25;

  /// Tensors that the forward pass of the region takes, as its function lists them.
  std::optional<int> listed(std::int32_t node) const;
  double entering(std::int32_t region) const;
  double called_between(std::int32_t node, std::int32_t next) const;
  OverheadTerm::Found found(double launches) const {
    return {.us = launches * names_.launch_us, .level = KeyLevel::kKind};
  }

  const ExecutionGraph& graph_;
  const CompiledNames& names_;
};

CompiledNames find_compiled_names(const ExecutionGraph& graph, const OverheadTable& table);

}  // namespace perfmodel
