#pragma once

#include <string>

#include "perfmodel/detail/critical_path.hpp"

namespace perfmodel::cli {

/// Shares of the step, its longest steps and the step without them, and work off the path.
std::string critical_path_text(const CriticalPath& path, const std::string& title, std::size_t top,
                               bool bold);

}  // namespace perfmodel::cli
