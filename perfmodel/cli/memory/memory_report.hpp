#pragma once

#include <string>

#include "memory/memory_answer.hpp"
#include "memory/memory_of_trace.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

std::string memory_text(const MemoryAnswer& answer);
Json memory_json(const MemoryAnswer& answer);

/// The same keys of a trace; null where it does not tell.
Json memory_json(const MemoryOfTrace& made);
std::string memory_text(const MemoryOfTrace& made);

/// Bytes of each purpose over the ops of the step: a stacked chart if `file` ends in .svg, a table
/// if in .csv. Errors: another ending.
Result<std::string> memory_timeline(const MemoryAnswer& answer, const std::string& file);

}  // namespace perfmodel::cli
