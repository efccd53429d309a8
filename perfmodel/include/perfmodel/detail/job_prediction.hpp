#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

struct JobPrediction {
  std::vector<Prediction> ranks;
  std::optional<JobReport> job;     ///< with several ranks
  std::vector<ChakraTrace> chakra;  ///< one per rank, of the reported step
  std::vector<std::string> warnings;
};

}  // namespace perfmodel
