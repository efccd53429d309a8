#pragma once

#include <cstdint>

#include "rewrite/graph_edit.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// Views and copies of tensors that are laid out in another order than before: each is written
/// anew, and a copy becomes a view, or nothing, if the new order allows it. Everything else reads
/// the new tensors through `places`.
class RelaidViews {
 public:
  /// Called with autograd's number when a copy is gone that had a backward function.
  using Closed = std::function<void(std::int64_t sequence)>;
  /// Maps autograd's number of a node to its number in the copy.
  using Moved = std::function<std::int64_t(std::int64_t sequence)>;

  RelaidViews(const StepView& step, GraphEdit& edit, TensorPlaces& places, Moved moved,
              Closed closed);

  /// Before anything is written: what reads `tensor`, a mention in the source, will be written anew
  /// as long as it is a view or a copy.
  void plan(const Tensor& tensor);
  /// `made` is read in place of `tensor` from here on.
  void replace(const Tensor& tensor, TensorRef made);

 private:
  void write(std::int32_t node);
  void drop_function(std::int32_t node);

  const StepView& step_;
  const ExecutionGraph& graph_;
  GraphEdit& edit_;
  TensorPlaces& places_;
  Moved moved_;
  Closed closed_;
  FactsOfValues<TensorRef> made_;
  FactsOfValues<bool> planned_;
};

}  // namespace perfmodel
