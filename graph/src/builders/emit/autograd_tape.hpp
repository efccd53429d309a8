#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph_builder.hpp"

namespace perfmodel {

/// The part of the forward pass that PyTorch's autograd engine keeps, and the engine that replays
/// it.
///
/// Nodes run in order of their sequence number, highest first; gradient accumulation of parameters
/// comes before everything else. A gradient that arrives as a second one is added inside the node
/// that produced it; one that was broadcast is summed there. The backward pass runs on a thread of
/// its own for a GPU, on the caller's for a CPU.
class AutogradTape {
 public:
  /// Emits the ops of one backward function: one gradient per output (`exists()` is false if none
  /// arrived) becomes one per input, which may not exist either.
  using BackwardOfMany =
      std::function<std::vector<TensorRef>(const std::vector<TensorRef>& gradients)>;
  using Backward = std::function<std::vector<TensorRef>(TensorRef gradient)>;

  /// The first differentiable op gets the number `first_sequence`.
  explicit AutogradTape(GraphBuilder& graph, std::int64_t first_sequence = 0)
      : graph_(graph), next_sequence_(first_sequence) {}

  GraphBuilder& graph() const { return graph_; }

  /// Number that the next differentiable op gets; ops that autograd looks at carry it.
  std::int64_t sequence() const { return next_sequence_; }

  /// Makes `tensor` a leaf whose gradient is kept. With `kept_gradient` the parameter has a
  /// gradient tensor already, to which the new one is added (zero_grad without set_to_none).
  void add_parameter(TensorRef tensor, TensorRef kept_gradient = {});
  bool requires_grad(TensorRef tensor) const { return producer_.contains(tensor.index); }

  /// Notes that `outputs` came from `inputs` (those without gradient are left out) by a
  /// differentiable op; takes a sequence number. Outputs: only the differentiable ones. An op in
  /// place names its input as output. Does nothing if no input needs a gradient; an op without
  /// inputs here (one that trains its own weights) is always noted.
  void record(std::string name, const std::vector<TensorRef>& inputs,
              const std::vector<TensorRef>& outputs, BackwardOfMany backward);
  void record(std::string name, const std::vector<TensorRef>& inputs, TensorRef output,
              Backward backward);
  /// The same for one input: `backward` gives its gradient. Returns `output`.
  template <class Gradient>
  TensorRef record_unary(std::string name, TensorRef input, TensorRef output, Gradient backward) {
    record(std::move(name), {input}, output,
           [backward](TensorRef gradient) { return std::vector<TensorRef>{backward(gradient)}; });
    return output;
  }

  /// Hooks of data-parallel training in the backward pass.
  struct Hooks {
    /// Called after the accumulation of a parameter's gradient, in the engine's node: returns the
    /// tensor that is the gradient from here on.
    std::function<TensorRef(TensorRef parameter, TensorRef gradient)> accumulated;
    std::function<void()> finished;  ///< after the last node, on the engine's thread
  };
  void set_hooks(Hooks hooks) { hooks_ = std::move(hooks); }

  /// The backward pass of `loss`, whose gradient is one.
  void run(TensorRef loss);

  /// The backward functions from the op that made `output` back to leaves, on the current thread:
  /// for rewrites, which put them among copied ones. Nothing is accumulated: the result is the
  /// gradient that each of `leaves`, which add_parameter() got, would receive.
  std::vector<TensorRef> run_back(TensorRef output, TensorRef gradient,
                                  const std::vector<TensorRef>& leaves = {});

  /// Gradient of a parameter after run(); does not exist if none arrived.
  TensorRef gradient(TensorRef parameter) const;

 private:
  struct Source {  // node and output that made a tensor
    int node = -1, output = 0;
  };
  struct Edge {
    Source to;    // node -1: this gradient is not used
    Shape shape;  // shape of the forward input
  };
  struct TapeNode {
    std::string name;
    std::int64_t sequence = -1;  // -1: accumulates a parameter's gradient
    std::vector<Edge> edges;
    BackwardOfMany backward;
    TensorRef parameter = {};        // accumulates the gradient of this parameter
    int pending = 0;                 // gradients that are still to come
    std::vector<TensorRef> buffers;  // sums of the gradients so far
  };

  TapeNode& node(int index) { return nodes_[index]; }
  void count_pending(int root);
  void start(Source root, TensorRef gradient);
  void evaluate_ready(bool accumulates);
  void evaluate(int index);
  bool may_add_in_place(TensorRef sum) const;
  void deliver(Source to, TensorRef gradient);
  TensorRef accumulate(TensorRef kept_gradient, TensorRef gradient);

  GraphBuilder& graph_;
  Hooks hooks_;
  std::vector<TapeNode> nodes_;
  std::vector<int> ready_;
  std::unordered_map<std::int32_t, Source> producer_;      // by tensor index
  std::unordered_map<std::int32_t, TensorRef> gradients_;  // by parameter index
  std::unordered_map<std::int32_t, int> holders_;          // buffers per storage
  std::int64_t next_sequence_;
};

}  // namespace perfmodel
