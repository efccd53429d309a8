#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sweep_points.hpp"

namespace perfmodel::sweep {

/// Cuts the rows of a sweep into chunks of consecutive ones: whole groups (rows that share graph
/// and rewrites), as many as fit, or pieces of a group that is larger than a chunk: equal ones, so
/// that no shard gets all the short ends.
class Chunks {
 public:
  Chunks(const SweepPoints& points, std::uint64_t most_rows);
  std::uint64_t count() const { return count_; }

  struct Range {
    std::uint64_t begin = 0, end = 0;
  };
  Range rows(std::uint64_t chunk) const;

 private:
  std::uint64_t rows_ = 0, per_group_ = 0, most_ = 0;
  std::uint64_t pieces_ = 0;  // pieces of a group; 0: chunks hold whole groups
  std::uint64_t count_ = 0;
};

/// Hands out missing rows, chunk by chunk; to any thread.
class WorkList {
 public:
  /// The rows that are not `finished`, from the chunks with number % shards == shard.
  WorkList(const Chunks& chunks, const std::vector<bool>& finished, std::size_t shard,
           std::size_t shards);

  /// Rows of the next chunk; none: there is no more work.
  std::vector<std::uint64_t> next();
  /// No more work from here on.
  void stop();

  std::uint64_t rows() const { return rows_; }  ///< in all, at the beginning

 private:
  std::vector<std::uint64_t> missing_in(std::uint64_t chunk) const;

  const Chunks& chunks_;
  const std::vector<bool>& finished_;
  std::size_t shards_;
  std::uint64_t rows_ = 0;
  std::mutex mutex_;
  std::uint64_t next_;
};

/// The shards, counted from 1, whose chunks have rows that are not finished.
std::vector<std::size_t> shards_with_gaps(const Chunks& chunks, const std::vector<bool>& finished,
                                          std::size_t shards);

}  // namespace perfmodel::sweep
