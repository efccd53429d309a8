#include "measured_memory_results.hpp"

#include "base/file_name.hpp"

namespace perfmodel {
namespace {

const ResultFields<MeasuredMemory::Point> kCurvePointFields = {
    PERFMODEL_FIELDS(MeasuredMemory::Point, time_us, allocated_bytes, reserved_bytes),
};

OrderedJson curve_json(const MeasuredMemory& memory) {
  return json_list(thinned(memory.curve), kCurvePointFields);
}

const ResultFields<MeasuredMemory> kMeasuredMemoryFields = {
    PERFMODEL_FIELDS(MeasuredMemory, device, peak_bytes, peak_us),
    {"peak_op", text_or_null(&MeasuredMemory::peak_op)},
    PERFMODEL_FIELDS(MeasuredMemory, reserved_bytes, totals_recorded),
    {"records", [](const MeasuredMemory& at) { return at.curve.size(); }},
    {"curve", curve_json},
};

const ResultFields<SnapshotDevice::Block> kSnapshotBlockFields = {
    PERFMODEL_FIELDS(SnapshotDevice::Block, bytes, address),
    {"frame", text_or_null(&SnapshotDevice::Block::frame)},
};

std::int64_t unused_bytes(const SnapshotDevice& at) {
  return at.reserved_bytes - at.allocated_bytes;
}
std::string unused_share(const SnapshotDevice& at) {
  return percent_of(static_cast<double>(unused_bytes(at)), static_cast<double>(at.reserved_bytes));
}

}  // namespace

const ResultFields<SnapshotDevice> kSnapshotDeviceFields = {
    {"device", [](const SnapshotDevice& at) { return at.memory.device; }, "At the end, bytes"},
    {"allocated_bytes", &SnapshotDevice::allocated_bytes, "allocated"},
    {"reserved_bytes", &SnapshotDevice::reserved_bytes, "reserved"},
    {"unused_bytes", unused_bytes, "reserved beyond", unused_share},
    {"free_segment_bytes", &SnapshotDevice::free_segment_bytes, "free segments"},
    {"inactive_split_bytes", &SnapshotDevice::inactive_split_bytes, "inactive split"},
    {"pending_free_bytes", &SnapshotDevice::pending_free_bytes, "pending release"},
    PERFMODEL_FIELDS(SnapshotDevice, segments, blocks),
    {"largest",
     [](const SnapshotDevice& at) { return json_list(at.largest, kSnapshotBlockFields); }},
};

OrderedJson measured_memory_json(const std::vector<MeasuredMemory>& devices) {
  if (devices.empty()) return nullptr;
  static const auto kFirst =
      named_fields(kMeasuredMemoryFields, {"peak_bytes", "reserved_bytes", "curve"});
  OrderedJson json = json_object(devices.front(), kFirst);
  json["devices"] = json_list(devices, kMeasuredMemoryFields);
  return json;
}

std::string memory_curves_csv(const std::vector<MeasuredMemory>& devices) {
  std::string text = "device," + csv_header(kCurvePointFields) + "\n";
  for (const MeasuredMemory& memory : devices) {
    for (const auto& point : memory.curve) {
      text += memory.device + "," + csv_cells(point, kCurvePointFields) + "\n";
    }
  }
  return text;
}

std::vector<MeasuredMemory> curves(const AllocatorSnapshot& snapshot) {
  std::vector<MeasuredMemory> all;
  for (const SnapshotDevice& device : snapshot.devices) all.push_back(device.memory);
  return all;
}

OrderedJson snapshot_json(const AllocatorSnapshot& snapshot) {
  return {{"snapshot", file_name(snapshot.source)},
          {"memory", measured_memory_json(curves(snapshot))},
          {"devices", json_list(snapshot.devices, kSnapshotDeviceFields)},
          {"warnings", snapshot.warnings}};
}

}  // namespace perfmodel
