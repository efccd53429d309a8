#pragma once

#include <vector>

#include "builders/emit/graph_builder.hpp"

namespace perfmodel {

/// The ops of torch.cuda.amp.GradScaler as PyTorch 2 writes them; they stand under the node that is
/// open.
class GradScaler {
 public:
  explicit GradScaler(GraphBuilder& graph);

  /// scale(loss): the loss times the scale, a number that autograd records.
  TensorRef scale(TensorRef loss, std::int64_t sequence);
  /// Inside MulBackward0.
  TensorRef scale_gradient(TensorRef gradient);
  /// step(), up to the optimizer's own: gradients divided by the scale and checked, and the host
  /// waits for the answer.
  void unscale(const std::vector<TensorRef>& gradients);
  /// update()
  void update();

 private:
  TensorRef copy(TensorRef from);

  GraphBuilder& graph_;
  TensorRef scale_, growth_tracker_, found_inf_;
};

}  // namespace perfmodel
