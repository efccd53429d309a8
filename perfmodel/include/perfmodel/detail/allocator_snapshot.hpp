#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One device in a snapshot of PyTorch's CUDA allocator (`torch.cuda.memory._snapshot()` as JSON).
struct SnapshotDevice {
  std::int64_t device = 0;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;  ///< at the time of the snapshot
  /// Bytes that no tensor holds: in empty segments, which empty_cache gives back, and next to
  /// blocks in use, which it cannot.
  std::int64_t free_segment_bytes = 0, inactive_split_bytes = 0;
  std::int64_t pending_free_bytes = 0;  ///< freed, but a stream may still use it
  std::size_t segments = 0, blocks = 0;

  struct Block {
    std::int64_t bytes = 0;
    std::uint64_t address = 0;
    std::string frame;  ///< "function (file:line)" of the innermost call; empty: not recorded
  };
  std::vector<Block> largest;  ///< live ones, at most 10, largest first

  /// From the device's trace, back from the state at the end. Without stamps the time is the
  /// number of the entry. Without a trace the curve is the one point of the end.
  MeasuredMemory memory;
  bool has_times = true;
};

struct AllocatorSnapshot {
  std::string source;
  std::vector<SnapshotDevice> devices;  ///< by number
  std::vector<std::string> warnings;
};

/// Whether a file is a snapshot as JSON by its first bytes: an object whose first key is one of a
/// snapshot's, or a list of segments. A file that cannot be read is none.
bool is_allocator_snapshot(const std::filesystem::path& file);

/// Reads a snapshot, plain or gzip, of at most 1 GiB of JSON. Every value that is used is checked;
/// errors have the JSON pointer.
Result<AllocatorSnapshot> read_allocator_snapshot(const std::filesystem::path& file);

}  // namespace perfmodel
