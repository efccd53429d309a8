#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// Why a predicted step takes as long as it does.
struct Explanation {
  /// "host" where most of the critical path is host work and the host works for longer than the
  /// device, else the family of kernels that takes most of the device's part of the path ("gemm",
  /// "collective", ...).
  std::string bound;
  /// Share of the step during which the bound works, 0 to 1: the busy host, or the kernels of the
  /// family. `path` has its share of the critical path, while other work may overlap it.
  double bound_share = 0;
  /// False: the prediction kept no ops, so there is no critical path, and the bound is the device
  /// if it works for more than half of the step.
  bool from_critical_path = false;

  struct Part {
    std::string name;  ///< "host", "gemm", "T4", ...
    double us = 0;
    double share = 0;  ///< share of the step
  };
  std::vector<Part> path;     ///< critical path, longest part first; adds up to the step
  std::vector<Part> host;     ///< T1 ... TX, longest first
  std::vector<Part> kernels;  ///< by family, longest first; need not lie on the path

  double gpu_utilization = 0;         ///< device busy over step, 0 to 1
  double modelled_time_fraction = 1;  ///< see Prediction::Coverage
  std::size_t kernels_out_of_range = 0;

  /// A few sentences for people.
  std::string text;
};

/// Explains one prediction. Never fails, except without memory.
///
/// ```
/// const auto made = explain(*predictor->predict(job, "t4", {.keep_ops = true}));
/// std::printf("%.0f %% %s\n", 100 * made.bound_share, made.bound.c_str());
/// ```
Explanation explain(const Prediction& prediction);

}  // namespace perfmodel
