#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph_builder.hpp"

namespace perfmodel {

/// Ranks of a job at equal distances that have a process group of their own.
struct RankGroup {
  std::int64_t number = 0;  ///< number of the group, unique in the job; above 1
  std::int64_t first = 0, stride = 1, size = 1;
};

/// Calls of one rank to a process group. A collective is a c10d op that contains
/// `record_param_comms`, which contains NCCL's label; the collectives of a rank are numbered across
/// all its groups: a wait of PyTorch before 2.2 only has that number.
class Communicator {
 public:
  /// All ranks. The first collective gets the number `first`.
  Communicator(GraphBuilder& graph, std::int64_t rank, std::int64_t world_size, std::int64_t first)
      : graph_(graph),
        rank_(rank),
        world_size_(world_size),
        next_(std::make_shared<std::int64_t>(first)) {}

  /// The next collective, of whatever group, gets this number.
  void count_from(std::int64_t number) { *next_ = number; }

  /// A group of which this rank of the job is one.
  Communicator subgroup(const RankGroup& group) const;
  /// Notes in the graph which ranks are in the groups of this one, which is called `name`.
  void describe_groups(const std::vector<RankGroup>& subgroups, std::string_view name = "1") const;

  std::int64_t rank() const { return rank_; }
  std::int64_t world_size() const { return world_size_; }

  /// Elements of `input` that go to each rank, and of `output` that come from each; without splits
  /// all ranks get the same. Returns the number to wait for.
  std::int64_t all_to_all(TensorRef output, TensorRef input, const Shape& output_splits = {},
                          const Shape& input_splits = {});
  std::int64_t all_reduce(TensorRef bucket);
  /// Each rank gets its part of the sum of `input`, which has one for each of them.
  std::int64_t reduce_scatter(TensorRef output, TensorRef input);
  std::int64_t all_gather(TensorRef output, TensorRef input);
  /// From rank 0; the caller waits.
  std::int64_t broadcast(TensorRef tensor);
  /// The stream that computes waits for a collective; the host goes on.
  void wait(std::int64_t number);

 private:
  // PyTorch before 2.2 writes the unpredictable address of the group; any number that no other
  // group has will do. Waits have 0 there.
  static constexpr std::int64_t kDefaultGroup = 1;

  void begin_record(std::vector<Value> tensors, std::string_view collective,
                    const Shape& input_splits, const Shape& output_splits);

  GraphBuilder& graph_;
  std::int64_t rank_, world_size_;  // in the group
  std::int64_t group_ = kDefaultGroup, first_ = 0, stride_ = 1;
  std::shared_ptr<std::int64_t> next_;  // one count for all groups of the rank
};

}  // namespace perfmodel
