#pragma once

#include <filesystem>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// From now on this thread, and threads that it starts, only open files below `read` (to be read)
/// and `write` (to be read, written, made and removed), by whatever path; open files stay open.
/// Landlock does it, in the kernel. Missing folders are left out. Error kImpossible: a system
/// without Landlock; nothing is kept then.
Result<void> keep_to_folders(const std::vector<std::filesystem::path>& read,
                             const std::vector<std::filesystem::path>& write);

}  // namespace perfmodel::serve
