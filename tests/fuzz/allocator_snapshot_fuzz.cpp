// Snapshots of PyTorch's allocator: what is read adds up.
#include "fuzz.hpp"
#include "perfmodel/detail/allocator_snapshot.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& file = fuzz::file_with(fuzz::text_of(data, size), ".json");
  is_allocator_snapshot(file);
  const auto read = read_allocator_snapshot(file);
  if (!read) {
    fuzz::check_error(read.error());
    return 0;
  }
  fuzz::check_lines(read->warnings);
  for (const SnapshotDevice& device : read->devices) {
    PERFMODEL_CHECK(device.allocated_bytes >= 0);
    PERFMODEL_CHECK(device.reserved_bytes >= device.allocated_bytes);
    PERFMODEL_CHECK(device.free_segment_bytes + device.inactive_split_bytes <=
                    device.reserved_bytes);
    PERFMODEL_CHECK(device.largest.size() <= 10);
    for (const auto& block : device.largest) {
      PERFMODEL_CHECK(block.bytes >= 0 && block.bytes <= device.reserved_bytes);
      fuzz::check_line(block.frame);
    }
  }
  return 0;
}
