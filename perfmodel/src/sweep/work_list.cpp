#include "work_list.hpp"

#include <algorithm>

namespace perfmodel::sweep {

Chunks::Chunks(const SweepPoints& points, std::uint64_t most_rows)
    : rows_(points.count()), per_group_(points.per_group()), most_(most_rows) {
  if (per_group_ <= most_) {
    most_ -= most_ % per_group_;
    count_ = (rows_ + most_ - 1) / most_;
  } else {
    pieces_ = (per_group_ + most_ - 1) / most_;
    count_ = rows_ / per_group_ * pieces_;
  }
}

Chunks::Range Chunks::rows(std::uint64_t chunk) const {
  if (pieces_ == 0) return {chunk * most_, std::min((chunk + 1) * most_, rows_)};
  const std::uint64_t group = chunk / pieces_ * per_group_, piece = chunk % pieces_;
  return {group + piece * per_group_ / pieces_, group + (piece + 1) * per_group_ / pieces_};
}

WorkList::WorkList(const Chunks& chunks, const std::vector<bool>& finished, std::size_t shard,
                   std::size_t shards)
    : chunks_(chunks), finished_(finished), shards_(shards), next_(shard) {
  for (std::uint64_t chunk = shard; chunk < chunks.count(); chunk += shards) {
    const auto [begin, end] = chunks.rows(chunk);
    for (std::uint64_t row = begin; row < end; ++row) rows_ += !finished[row];
  }
}

std::vector<std::uint64_t> WorkList::missing_in(std::uint64_t chunk) const {
  std::vector<std::uint64_t> missing;
  const auto [begin, end] = chunks_.rows(chunk);
  for (std::uint64_t row = begin; row < end; ++row) {
    if (!finished_[row]) missing.push_back(row);
  }
  return missing;
}

std::vector<std::uint64_t> WorkList::next() {
  const std::lock_guard lock(mutex_);
  while (next_ < chunks_.count()) {
    auto missing = missing_in(next_);
    next_ += shards_;
    if (!missing.empty()) return missing;
  }
  return {};
}

void WorkList::stop() {
  const std::lock_guard lock(mutex_);
  next_ = chunks_.count();
}

std::vector<std::size_t> shards_with_gaps(const Chunks& chunks, const std::vector<bool>& finished,
                                          std::size_t shards) {
  std::vector<bool> gaps(shards);
  for (std::uint64_t chunk = 0; chunk < chunks.count(); ++chunk) {
    const auto [begin, end] = chunks.rows(chunk);
    for (std::uint64_t row = begin; row < end; ++row) {
      if (!finished[row]) gaps[chunk % shards] = true;
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    if (gaps[shard]) found.push_back(shard + 1);
  }
  return found;
}

}  // namespace perfmodel::sweep
