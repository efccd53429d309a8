#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "perfmodel/sharding/detail/batch_part.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// Places of a TorchRec step where the host waits until the device has caught up.
enum class HostWait : std::uint8_t {
  kIndexBackward,  ///< the places of the interaction's products are uploaded
  kIdPermute,      ///< counts of ids come back, once per group of tables
  kIndexForward,
  kIdSizes,  ///< sizes of the next batch's ids are exchanged and read
  kCount
};
inline constexpr std::size_t kHostWaits = static_cast<std::size_t>(HostWait::kCount);

/// Work of a TorchRec step that a plan's loads do not count [us], by part: on the host, the first
/// of it before it launches anything (`lead`); on the device, gaps between kernels included; and
/// how long each wait lasts once the device has caught up.
class BatchWork {
 public:
  int exchanges = 1;        ///< kinds of exchange, each with lookups of its own before or after it
  bool has_copies = false;  ///< data-parallel tables are one more group of lookups

  double& host(BatchPart part) { return us_[index(part)]; }
  double host(BatchPart part) const { return us_[index(part)]; }
  double& device(BatchPart part) { return us_[kBatchParts + index(part)]; }
  double device(BatchPart part) const { return us_[kBatchParts + index(part)]; }
  double& lead(BatchPart part) { return us_[kWaits + kHostWaits + index(part)]; }
  double lead(BatchPart part) const { return us_[kWaits + kHostWaits + index(part)]; }
  double& wait(HostWait wait) { return us_[kWaits + static_cast<std::size_t>(wait)]; }
  double wait(HostWait wait) const { return us_[kWaits + static_cast<std::size_t>(wait)]; }

  /// Adds `factor` times the other. Differences of steps may leave parts a little below 0.
  BatchWork& add(const BatchWork& other, double factor = 1);
  /// Takes the smaller one of each value.
  BatchWork& take_least(const BatchWork& other);
  BatchWork& raise_to_zero();
  /// Leaves the device's parts alone.
  void drop_host();
  /// The host's own time and its waits.
  double host_us() const;
  /// All parts of the device, one after the other.
  double device_us() const;

 private:
  static constexpr std::size_t kWaits = 2 * kBatchParts;
  static std::size_t index(BatchPart part) { return static_cast<std::size_t>(part); }
  std::array<double, 3 * kBatchParts + kHostWaits> us_{};  ///< host, device, waits, leads
};

/// The work of a step by the plan: of the batch, of each kind of exchange that the plan has, of
/// each table of the kind, and of each rank that sends vectors of whole tables (`torchrec_step()`).
struct StepNeeds {
  BatchWork batch;
  enum Kind : std::uint8_t { kVectors, kSums, kHostSums, kCopies, kKinds };
  static Kind kind_of(ShardingType type);
  struct Need {
    BatchWork once, table;
  };
  std::array<Need, kKinds> kinds{};
  BatchWork sender;  ///< nowhere below 0
  std::int64_t world = 0;
  bool has_layers = false;  ///< `batch` has the device's work for the layers of the dense part

  BatchWork of(std::span<const TablePlacement> placements) const;
  std::int64_t senders(std::span<const TablePlacement> placements) const;

  /// No plan has less of any part. `kinds_of_tables`: a bit for each kind that a table may have.
  BatchWork least(std::span<const std::uint8_t> kinds_of_tables) const;
};

}  // namespace perfmodel::sharding
