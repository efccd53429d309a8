#pragma once

#include <span>
#include <string>
#include <vector>

#include "job_tasks.hpp"
#include "perfmodel/graph/chakra.hpp"

namespace perfmodel {

/// The last pass of every rank. Uneven all-to-alls count as their largest rank's. Warns of
/// collectives of a kind that Chakra does not know.
std::vector<ChakraTrace> job_chakra(std::span<const RankProgram> programs, const JobTasks& tasks,
                                    std::vector<std::string>& warnings);

}  // namespace perfmodel
