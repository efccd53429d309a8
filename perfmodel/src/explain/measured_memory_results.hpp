#pragma once

#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/detail/allocator_snapshot.hpp"

/// Recorded memory as JSON and CSV.
namespace perfmodel {

/// Null without devices.
OrderedJson measured_memory_json(const std::vector<MeasuredMemory>& devices);
/// All points of all devices, one per line.
std::string memory_curves_csv(const std::vector<MeasuredMemory>& devices);

extern const ResultFields<SnapshotDevice> kSnapshotDeviceFields;

/// The curves of all devices.
std::vector<MeasuredMemory> curves(const AllocatorSnapshot& snapshot);
/// The members of a document of a snapshot.
OrderedJson snapshot_json(const AllocatorSnapshot& snapshot);

}  // namespace perfmodel
