#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "kernels/nccl_log.hpp"
#include "kernels/time_line.hpp"

namespace perfmodel {

struct TopologyFitStudy {
  std::vector<std::string> logs;
  NcclLogOptions reading;
  std::string gpu, like, name;  ///< `like` empty: the GPU's usual topology; `name`: of the result
  NetworkFacts network;         ///< the healthy machine's NICs, where they differ from `like`
};

/// A fitted figure and the least and greatest that the sizes allow.
struct FittedFigure {
  std::string name;
  double value = 0, low = 0, high = 0;
};

struct GroupFit {
  MeasuredGroup group;
  TimeLine line;
  std::vector<FittedFigure> figures;  ///< ranges: with any one size left out
  double error_percent = 0;           ///< mean |error| of the fitted sizes
  std::optional<double> half_percent =
      {};                  ///< mean |error| of the others, if every second size is fitted
  std::size_t enough = 0;  ///< sizes with which the others stay within 6 %
  std::vector<std::string> deviations = {};
};

struct TopologyFit {
  Topology healthy;
  std::vector<GroupFit> groups;
  std::vector<FittedFigure> figures;  ///< the NICs' figures; ranges: over the sizes that show them
  std::vector<std::string> warnings;
  OrderedJson topology;  ///< the file
};

}  // namespace perfmodel
