#pragma once

#include <vector>

#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::advice {

/// Kernels of one step that are priced alike.
struct KernelCount {
  KernelFamily family = KernelFamily::kSmall;
  Price price;
  double limited_us = 0;
  double count = 0;
};

/// Parts of a step that the error of a gain depends on.
struct StepParts {
  std::vector<KernelCount> kernels;  ///< sorted
  double e2e_us = 0;
  std::vector<double> other_hosts_us;  ///< the step on `kOtherHosts`
  double host_path_share = 0;          ///< share of the critical path
  bool own_pace = false;               ///< see Prediction::Coverage
};

/// Reads a prediction that kept its ops and knows other hosts; `host_path_us` on its critical path.
StepParts step_parts(const Prediction& prediction, double host_path_us);

/// How far the difference of two predicted steps may be off [us]. Both run on one host and share
/// most kernels, whose errors cancel; what differs counts:
///
///   e^2 = d^2 (h_b^2 + h_v^2) + g^2 + (0.001 t_b)^2
///
/// h: half the range of the sum of the kernels (`SummedRange`) that only one of the steps has; d:
/// the larger share of kernels in the two critical paths, since work off the path does not move the
/// step; g: by how much less is gained on a host of `kOtherHosts` that runs both (of `kSameHosts`,
/// in proportion, if both know the program's own launches); t_b: the steady state is known to 0.1
/// %. `scale` brings the second step to the samples of the first.
double gain_error_us(const StepParts& before, const StepParts& after, double scale);

}  // namespace perfmodel::advice
