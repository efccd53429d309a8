#pragma once

#include <string>

#include "jobs/read_job.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// Prints the memory of the layout that a trainer's job file names, on the fullest rank. Errors: no
/// GPU, and as read_job() and the pricer of layouts have them.
Result<void> print_job_memory(const std::string& file, const std::string& gpu,
                              const GivenFields& given, bool json);

}  // namespace perfmodel::cli
