#pragma once

#include <string>
#include <vector>

#include "perfmodel/detail/allocator_snapshot.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// The curves of all devices.
std::vector<MeasuredMemory> curves(const AllocatorSnapshot& snapshot);

Json snapshot_json(const AllocatorSnapshot& snapshot);
std::string snapshot_text(const AllocatorSnapshot& snapshot, bool bold);

}  // namespace perfmodel::cli
