#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/detail/trace_comparison.hpp"

namespace perfmodel {

/// One step in the figures that recordings and predictions share.
struct ComparedStep {
  std::string source, gpu;  ///< file; GPU as a trace names it
  struct Step {
    std::string name;
    double us = 0;
  };
  std::vector<Step> steps;
  double step_us = 0;                                                 ///< mean
  double compute_us = 0, exposed_comm_us = 0, exposed_memcpy_us = 0;  ///< per step
  std::vector<std::pair<std::string, double>> host_terms = {};        ///< per step

  struct Kernel {
    std::string name;
    double count = 0, us = 0;
  };
  struct Op {
    std::string name, shapes;
    double count = 0, device_us = 0, host_us = 0;
    std::vector<Kernel> kernels = {};
  };
  std::vector<Op> ops;  ///< per step; rows of equal name and shapes add up
  std::vector<Kernel> families = {};
};

/// Row of `ops` for the host's time and device work outside of every op.
inline constexpr std::string_view kOutsideOps = "(outside of ops)";

/// As `trace` prints it: the ops that launch the work, by name and shapes or only by name.
ComparedStep step_of(const ComparedTrace& trace, bool by_shape);

/// Families of kernels by the name that a recording has.
using FamiliesOfKernels = std::unordered_map<std::string_view, KernelFamily>;
FamiliesOfKernels families_of(const Prediction& prediction);

/// Ops are top-level ones, their kernels families; with the terms of the host. A kernel that
/// `known` does not have is of the family that its name tells, else of "other".
Result<ComparedStep> measured_step(
    const Trace& trace, const std::optional<std::pair<std::size_t, std::size_t>>& iterations,
    const FamiliesOfKernels& known);
ComparedStep predicted_step(const Prediction& prediction);

}  // namespace perfmodel
