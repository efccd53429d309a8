#include "snapshot_report.hpp"

#include <fmt/format.h>

#include "base/number_text.hpp"
#include "cli/shared/arguments.hpp"
#include "explain/measured_memory_results.hpp"
#include "measured_memory_report.hpp"
#include "terminal/field_table.hpp"

namespace perfmodel::cli {
namespace {

std::string largest_blocks(const AllocatorSnapshot& snapshot, bool bold) {
  TextTable table{"Largest live blocks", "bytes", "<device"};
  for (const SnapshotDevice& device : snapshot.devices) {
    for (const auto& block : device.largest) {
      table.row({block.frame.empty() ? fmt::format("{:#x}", block.address) : block.frame,
                 grouped(block.bytes), device.memory.device});
    }
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

}  // namespace

std::string snapshot_text(const AllocatorSnapshot& snapshot, bool bold) {
  TextList head;
  head.row("snapshot", file_name(snapshot.source));
  const TextTable at_the_end =
      field_table(snapshot.devices, kSnapshotDeviceFields,
                  {"device", "allocated_bytes", "reserved_bytes", "free_segment_bytes",
                   "inactive_split_bytes", "pending_free_bytes", "unused_bytes"});
  std::string text = "\n" + head.text() + measured_memory_text(curves(snapshot), bold) + "\n" +
                     at_the_end.text(bold) + largest_blocks(snapshot, bold);
  return text + warnings_text(snapshot.warnings);
}

}  // namespace perfmodel::cli
