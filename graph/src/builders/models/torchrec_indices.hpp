#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "builders/emit/collectives.hpp"
#include "builders/emit/jagged.hpp"
#include "torchrec_batch.hpp"
#include "torchrec_placement.hpp"

namespace perfmodel {

/// Brings indices to their tables (KJTAllToAll): features in the order of their owners, cut by
/// blocks of rows if rows are cut; then, group by group, all ranks exchange sizes, lengths and
/// values.
class IndexExchange {
 public:
  IndexExchange(AutogradTape& tape, const TorchrecDlrmConfig& config,
                const TorchrecPlacement& placement, Communicator& ranks)
      : tape_(tape), graph_(tape.graph()), config_(config), placement_(placement), ranks_(ranks) {}

  /// Indices of the tables here, from all ranks, by group, and of the replicated ones, from this
  /// rank.
  struct Arrived {
    std::vector<Jagged> groups;
    Jagged replicated;
  };

  /// `first`: number of the collective that brings lengths of the first group; values and further
  /// groups follow.
  Arrived wait(std::int64_t first);
  /// The next batch.
  void send(const Batch& next);

  /// Collectives that all groups' sizes take, and all in all.
  std::int64_t size_collectives() const { return static_cast<std::int64_t>(groups().size()); }
  std::int64_t collectives() const { return 3 * size_collectives(); }

 private:
  struct SentSizes {
    TensorRef received;
    std::int64_t number = 0;
  };

  const std::vector<ShardingGroup>& groups() const { return placement_.groups(); }
  std::int64_t pieces_here(const ShardingGroup& group) const {
    return static_cast<std::int64_t>(group.on_rank(config_.rank).size());
  }
  template <class Amount>
  Shape per_rank(Amount amount) const;

  Jagged arrive(const ShardingGroup& group, std::int64_t lengths_number);
  Jagged order_features(const Jagged& features);
  std::vector<Jagged> split_by_group(const Jagged& features);
  Jagged cut_by_rows(const ShardingGroup& group, const Jagged& features);
  void length_per_feature(TensorRef lengths, std::int64_t bags, std::int64_t sequence);
  SentSizes send_sizes();
  void wait_for_sizes(const SentSizes& sent);
  void send_jagged(const ShardingGroup& group, const Jagged& sent);
  void send_part(std::string_view label, TensorRef part, std::int64_t from_each,
                 const Shape& to_each);
  void no_wait();

  AutogradTape& tape_;
  GraphBuilder& graph_;
  const TorchrecDlrmConfig& config_;
  const TorchrecPlacement& placement_;
  Communicator& ranks_;
};

}  // namespace perfmodel
