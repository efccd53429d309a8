#pragma once

#include <string_view>

#include "graph_builder.hpp"

namespace perfmodel {

/// What one rank calls of a process group. A collective is a c10d op, in it `record_param_comms`,
/// in that the label of NCCL; the collectives of a rank are numbered.
class Communicator {
 public:
  /// The first collective gets the number `first`.
  Communicator(GraphBuilder& graph, std::int64_t rank, std::int64_t world_size, std::int64_t first)
      : graph_(graph), rank_(rank), world_size_(world_size), next_(first) {}

  std::int64_t rank() const { return rank_; }
  std::int64_t world_size() const { return world_size_; }

  /// Elements of `input` that go to each rank, and of `output` that come from each; without splits
  /// all ranks get the same. Returns the number to wait for.
  std::int64_t all_to_all(TensorRef output, TensorRef input, const Shape& output_splits = {},
                          const Shape& input_splits = {});
  std::int64_t all_reduce(TensorRef bucket);
  /// From rank 0; the caller waits.
  std::int64_t broadcast(TensorRef tensor);
  /// The stream that computes waits for a collective; the host goes on.
  void wait(std::int64_t number);

 private:
  void begin_record(std::vector<Value> tensors, std::string_view collective,
                    const Shape& input_splits, const Shape& output_splits);

  GraphBuilder& graph_;
  std::int64_t rank_, world_size_, next_;
};

}  // namespace perfmodel
