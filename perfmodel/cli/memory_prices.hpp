#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/memory.hpp"
#include "perfmodel/what_if.hpp"

namespace perfmodel::cli {

using OpStarts = std::vector<std::pair<std::int64_t, double>>;

/// What `memory` needs to say what a way to fit costs in time, and when an op runs.
class MemoryPrices {
 public:
  /// Errors: those of data files.
  static Result<MemoryPrices> load(const Gpu& gpu);

  /// One thing to do so that a step fits.
  struct Way {
    std::string how;      ///< flags of `memory`: "--recompute full"
    WhatIfAnswer answer;  ///< the step done so
    double slowdown = 1;  ///< time per sample over that of a GPU with memory enough
  };
  struct Ways {
    std::vector<Way> fitting;  ///< the cheapest first
    std::optional<Way> least;  ///< where nothing fits: what needs the least memory
    std::size_t tried = 0;
  };
  /// Tries memory options, alone and together, a smaller batch, and FSDP on the GPUs of a node.
  Result<Ways> ways_to_fit(const ExecutionGraph& graph) const;

  /// When each top-level op begins on the host, by its node id: pairs of id and microseconds.
  Result<OpStarts> op_starts(const ExecutionGraph& graph) const;

 private:
  WhatIfTarget target() const;

  Gpu gpu_;
  std::shared_ptr<const ChosenKernelModels> models_;
  ChosenOverheads overheads_;
};

}  // namespace perfmodel::cli
