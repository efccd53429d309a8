#include "snapshot_report.hpp"

#include <fmt/format.h>

#include "base/number_text.hpp"
#include "cli/shared/arguments.hpp"
#include "measured_memory_report.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

std::string bytes_cell(std::int64_t bytes) { return grouped(bytes); }

std::string at_the_end(const AllocatorSnapshot& snapshot, bool bold) {
  TextTable table{"At the end, bytes", "allocated",       "reserved",       "free segments",
                  "inactive split",    "pending release", "reserved beyond"};
  for (const SnapshotDevice& device : snapshot.devices) {
    const std::int64_t beyond = device.reserved_bytes - device.allocated_bytes;
    table.row(
        {device.memory.device, bytes_cell(device.allocated_bytes),
         bytes_cell(device.reserved_bytes), bytes_cell(device.free_segment_bytes),
         bytes_cell(device.inactive_split_bytes), bytes_cell(device.pending_free_bytes),
         percent_of(static_cast<double>(beyond), static_cast<double>(device.reserved_bytes))});
  }
  return "\n" + table.text(bold);
}

std::string largest_blocks(const AllocatorSnapshot& snapshot, bool bold) {
  TextTable table{"Largest live blocks", "bytes", "<device"};
  for (const SnapshotDevice& device : snapshot.devices) {
    for (const auto& block : device.largest) {
      table.row({block.frame.empty() ? fmt::format("{:#x}", block.address) : block.frame,
                 bytes_cell(block.bytes), device.memory.device});
    }
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

}  // namespace

std::vector<MeasuredMemory> curves(const AllocatorSnapshot& snapshot) {
  std::vector<MeasuredMemory> all;
  for (const SnapshotDevice& device : snapshot.devices) all.push_back(device.memory);
  return all;
}

Json snapshot_json(const AllocatorSnapshot& snapshot) {
  Json json = document(schemas::kAllocatorSnapshot);
  json["snapshot"] = file_name(snapshot.source);
  json["memory"] = measured_memory_json(curves(snapshot));
  json["devices"] = Json::array();
  for (const SnapshotDevice& device : snapshot.devices) {
    Json largest = Json::array();
    for (const auto& block : device.largest) {
      largest.push_back({{"bytes", block.bytes},
                         {"address", block.address},
                         {"frame", block.frame.empty() ? Json() : Json(block.frame)}});
    }
    json["devices"].push_back({{"device", device.memory.device},
                               {"allocated_bytes", device.allocated_bytes},
                               {"reserved_bytes", device.reserved_bytes},
                               {"unused_bytes", device.reserved_bytes - device.allocated_bytes},
                               {"free_segment_bytes", device.free_segment_bytes},
                               {"inactive_split_bytes", device.inactive_split_bytes},
                               {"pending_free_bytes", device.pending_free_bytes},
                               {"segments", device.segments},
                               {"blocks", device.blocks},
                               {"largest", std::move(largest)}});
  }
  json["warnings"] = snapshot.warnings;
  return json;
}

std::string snapshot_text(const AllocatorSnapshot& snapshot, bool bold) {
  TextList head;
  head.row("snapshot", file_name(snapshot.source));
  std::string text = "\n" + head.text() + measured_memory_text(curves(snapshot), bold) +
                     at_the_end(snapshot, bold) + largest_blocks(snapshot, bold);
  return text + warnings_text(snapshot.warnings);
}

}  // namespace perfmodel::cli
