#include "perfmodel/sharding/detail/step_needs.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <vector>

namespace perfmodel::sharding {

BatchWork& BatchWork::add(const BatchWork& other, double factor) {
  for (std::size_t i = 0; i < us_.size(); ++i) us_[i] += factor * other.us_[i];
  return *this;
}

BatchWork& BatchWork::take_least(const BatchWork& other) {
  for (std::size_t i = 0; i < us_.size(); ++i) us_[i] = std::min(us_[i], other.us_[i]);
  return *this;
}

BatchWork& BatchWork::raise_to_zero() {
  for (double& us : us_) us = std::max(0.0, us);
  return *this;
}

void BatchWork::drop_host() {
  std::fill(us_.begin(), us_.begin() + kBatchParts, 0.0);
  std::fill(us_.begin() + kWaits, us_.end(), 0.0);
}

double BatchWork::host_us() const {
  const auto first_wait = us_.begin() + kWaits;
  const double waits = std::accumulate(first_wait, first_wait + kHostWaits, 0.0);
  return std::accumulate(us_.begin(), us_.begin() + kBatchParts, waits);
}

double BatchWork::device_us() const {
  return std::accumulate(us_.begin() + kBatchParts, us_.begin() + kWaits, 0.0);
}

StepNeeds::Kind StepNeeds::kind_of(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel: return kCopies;
    case ShardingType::kRowWise: return kSums;
    case ShardingType::kTableRowWise:
    case ShardingType::kGrid:
    case ShardingType::kHostRowSplit: return kHostSums;
    default: return kVectors;
  }
}

// Tables without ranks have one each, as far as there are ranks.
std::int64_t StepNeeds::senders(std::span<const TablePlacement> placements) const {
  std::vector<char> sends(world);
  std::int64_t unplaced = 0;
  for (const TablePlacement& placement : placements) {
    if (kind_of(placement.type) != kVectors) continue;
    unplaced += placement.ranks.empty() ? 1 : 0;
    for (const std::int64_t rank : placement.ranks) {
      if (rank >= std::ssize(sends)) sends.resize(rank + 1);  // a study of more ranks
      sends[rank] = 1;
    }
  }
  return std::min(std::ssize(sends), std::ranges::count(sends, 1) + unplaced);
}

BatchWork StepNeeds::of(std::span<const TablePlacement> placements) const {
  std::array<std::size_t, kKinds> tables{};
  for (const TablePlacement& placement : placements) ++tables[kind_of(placement.type)];
  BatchWork work = batch;
  work.exchanges = 0;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    if (tables[kind] == 0) continue;
    if (kind == kCopies) work.has_copies = true;
    if (kind != kCopies) ++work.exchanges;
    work.add(kinds[kind].once).add(kinds[kind].table, static_cast<double>(tables[kind]));
  }
  if (world > 0) work.add(sender, static_cast<double>(senders(placements)));
  return work;
}

BatchWork StepNeeds::least(std::span<const std::uint8_t> kinds_of_tables) const {
  BatchWork work = batch;
  std::uint8_t any = 0;
  for (const std::uint8_t kinds_of_table : kinds_of_tables) {
    any |= kinds_of_table;
    std::optional<BatchWork> least;
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if ((kinds_of_table & (1U << kind)) == 0) continue;
      least = least ? least->take_least(kinds[kind].table) : kinds[kind].table;
    }
    if (least) work.add(*least);
  }
  for (const Need& need : kinds)
    work.add(BatchWork().take_least(need.once));  // a kind may save work
  work.has_copies = (any & (1U << kCopies)) != 0;
  work.exchanges = std::max(1, std::popcount(any) - (work.has_copies ? 1 : 0));
  return work;
}

}  // namespace perfmodel::sharding
