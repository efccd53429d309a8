#pragma once

#include <filesystem>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// From now on this thread, and those that it starts, open no files but those below `read` (to be
/// read) and `write` (to be read, written, made and removed), by whatever path; files that are open
/// stay so. Landlock does it, in the kernel. Folders that are not there are left out.
///
/// Error kImpossible: a system that has no Landlock; nothing is kept then.
Result<void> keep_to_folders(const std::vector<std::filesystem::path>& read,
                             const std::vector<std::filesystem::path>& write);

}  // namespace perfmodel::serve
