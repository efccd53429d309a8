#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"
#include "sweep_points.hpp"

namespace perfmodel::sweep {

/// Finished rows of a sweep, and their places. Takes a bit per row of the sweep and some words per
/// member of a part.
struct PartsIndex {
  struct Member {
    std::size_t part = 0;               ///< into `parts`
    std::uint64_t offset = 0;           ///< in its file
    std::uint64_t first = 0, last = 0;  ///< its rows, as SweepPoints numbers them
  };
  std::vector<std::filesystem::path> parts;  ///< sorted by name
  std::vector<Member> members;               ///< those with rows of this sweep
  std::vector<bool> finished;                ///< by row
  std::uint64_t rows = 0;                    ///< finished ones
  std::uint64_t foreign = 0;                 ///< rows that are none of this sweep
  std::uint64_t repeated = 0;                ///< duplicate rows
  std::uint64_t torn_bytes = 0;

  bool complete() const { return rows == finished.size(); }
};

/// Reads the parts of a folder (`*.csv.gz`); none without a folder. Errors of `read_part`.
Result<PartsIndex> index_parts(const std::filesystem::path& folder, const SweepPoints& points,
                               std::string_view fingerprint);

/// Writes all rows in their order, whatever the order in the parts, as one CSV; `.gz` compresses.
/// The file appears whole or not at all, and is on the disk when this returns. Holds some ten
/// thousand rows in memory. All rows must be finished. Errors: reading or writing fails.
Result<void> merge_parts(const PartsIndex& index, const SweepPoints& points,
                         const std::filesystem::path& output);

}  // namespace perfmodel::sweep
