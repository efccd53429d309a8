#pragma once

#include <string>

#include "memory/memory_answer.hpp"
#include "memory/memory_of_trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

std::string memory_text(const MemoryAnswer& answer);
std::string memory_text(const MemoryOfTrace& recorded);

/// Bytes of each purpose over the ops of the step: a stacked chart if `file` ends in .svg, a table
/// if in .csv. Errors: another ending.
Result<std::string> memory_timeline(const MemoryAnswer& answer, const std::string& file);

}  // namespace perfmodel::cli
