#pragma once

#include <vector>

#include "perfmodel/detail/job_timeline.hpp"
#include "perfmodel/graph/chakra.hpp"

namespace perfmodel {

/// One step of a job as files for other programs. Ranks of one pipeline stage do the same.
struct LayoutTraces {
  std::vector<ChakraTrace> ranks;  ///< one per rank, or one per stage
  ChakraJobOptions groups;         ///< process groups of these ranks
  JobTimeline timeline;            ///< a rank of each stage
  double step_us = 0;              ///< when the last task ends
};

}  // namespace perfmodel
