#pragma once

#include <string>

#include "perfmodel/detail/allocator_snapshot.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

std::string snapshot_text(const AllocatorSnapshot& snapshot, bool bold);

}  // namespace perfmodel::cli
