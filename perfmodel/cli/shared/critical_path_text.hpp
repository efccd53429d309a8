#pragma once

#include <string>

#include "perfmodel/detail/critical_path.hpp"

namespace perfmodel::cli {

/// Shares of the step, its longest steps and what the step would be without them, and what runs
/// beside the path.
std::string critical_path_text(const CriticalPath& path, const std::string& title, std::size_t top,
                               bool bold);

}  // namespace perfmodel::cli
