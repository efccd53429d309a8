#pragma once

#include <cstdint>

#include "builders/emit/autograd_tape.hpp"
#include "builders/emit/collectives.hpp"
#include "torchrec_placement.hpp"

namespace perfmodel {

/// Request and wait of one exchange of vectors, as TorchRec hangs them into autograd: the request
/// gives a token that the wait takes, so gradients are requested where vectors are awaited and
/// awaited where vectors are requested. All2All_Pooled and ReduceScatterBase.
class VectorRequest {
 public:
  VectorRequest(AutogradTape& tape, const Communicator& ranks)
      : tape_(tape), graph_(tape.graph()), ranks_(ranks) {}

  /// `pooled` [N * batch, width], N ranks that own columns; `widths`: of all of them.
  void request_all_to_all(TensorRef pooled, std::int64_t batch, Shape widths);
  /// [batch, sum of widths].
  TensorRef wait_for_all_to_all();

  /// `pooled` [N * rows, width]: partial sums for N ranks.
  void request_reduce_scatter(TensorRef pooled);
  /// [rows, width].
  TensorRef wait_for_reduce_scatter();

 private:
  TensorRef flat_buffer(std::int64_t elements);
  void make_token();
  Shape times_batch(Shape amounts) const;
  Shape own_width_to_each() const;
  void send_gradient(TensorRef gradient);
  void gather_gradient(TensorRef gradient, const Shape& shape);
  TensorRef wait_for_gradient(const Shape& shape);

  AutogradTape& tape_;
  GraphBuilder& graph_;
  Communicator ranks_;
  std::int64_t batch_ = 0, own_width_ = 0;
  Shape widths_, pooled_shape_;
  TensorRef token_, received_, received_gradient_;
  std::int64_t number_ = 0, gradient_number_ = 0;
};

/// The exchange of vectors of one group.
class VectorExchange {
 public:
  /// `host`, `across`: of this rank, only used by groups with hosts.
  VectorExchange(AutogradTape& tape, const ShardingGroup& group, std::int64_t batch,
                 const Communicator& ranks, const Communicator& host, const Communicator& across);

  /// `pooled` [samples of all ranks, columns here].
  void send(TensorRef pooled);
  /// [batch, columns of all tables of the group], table by table.
  TensorRef receive();

  /// Collectives that the forward pass takes; the backward pass takes as many.
  static std::int64_t collectives(const ShardingGroup& group) { return group.has_hosts() ? 2 : 1; }

 private:
  TensorRef columns_in_order(TensorRef vectors);

  AutogradTape& tape_;
  const ShardingGroup& group_;
  std::int64_t batch_;
  VectorRequest sums_, columns_;
};

}  // namespace perfmodel
