#include "autograd_tape.hpp"

#include <algorithm>

#include "graph_reduction.hpp"
#include "graph_views.hpp"
#include "memory.hpp"
#include "perfmodel/result.hpp"
#include "sparse.hpp"
#include "update.hpp"

namespace perfmodel {

void AutogradTape::add_parameter(TensorRef tensor, TensorRef kept_gradient) {
  producer_[tensor.index] = {.node = static_cast<int>(nodes_.size())};
  TapeNode& made = nodes_.emplace_back();
  made.name = "torch::autograd::AccumulateGrad";
  made.buffers.resize(1);
  made.parameter = tensor;
  made.backward = [this, tensor, kept_gradient](const std::vector<TensorRef>& gradients) {
    if (gradients.front().exists()) {
      gradients_[tensor.index] = accumulate(kept_gradient, gradients.front());
    }
    return std::vector<TensorRef>();
  };
}

void AutogradTape::record(std::string name, const std::vector<TensorRef>& inputs,
                          const std::vector<TensorRef>& outputs, BackwardOfMany backward) {
  const auto needs_gradient = [this](TensorRef input) { return requires_grad(input); };
  if (!inputs.empty() && std::none_of(inputs.begin(), inputs.end(), needs_gradient)) return;
  TapeNode made;
  made.name = std::move(name);
  made.sequence = next_sequence_++;
  made.backward = std::move(backward);
  made.buffers.resize(outputs.size());
  for (TensorRef input : inputs) {
    const auto producer = producer_.find(input.index);
    const Source source = producer == producer_.end() ? Source{} : producer->second;
    made.edges.push_back({source, graph_.shape(input)});
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    producer_[outputs[i].index] = {static_cast<int>(nodes_.size()), static_cast<int>(i)};
  }
  nodes_.push_back(std::move(made));
}

void AutogradTape::record(std::string name, const std::vector<TensorRef>& inputs, TensorRef output,
                          Backward backward) {
  record(std::move(name), inputs, std::vector<TensorRef>{output},
         [backward = std::move(backward)](const std::vector<TensorRef>& gradients) {
           return backward(gradients.front());
         });
}

TensorRef AutogradTape::gradient(TensorRef parameter) const {
  const auto at = gradients_.find(parameter.index);
  return at == gradients_.end() ? TensorRef{} : at->second;
}

void AutogradTape::count_pending(int root) {
  std::vector<int> walk = {root};
  std::vector<bool> seen(nodes_.size(), false);
  seen[root] = true;
  while (!walk.empty()) {
    const int from = walk.back();
    walk.pop_back();
    for (const Edge& edge : node(from).edges) {
      if (edge.to.node < 0) continue;
      ++node(edge.to.node).pending;
      if (!seen[edge.to.node]) walk.push_back(edge.to.node);
      seen[edge.to.node] = true;
    }
  }
}

void AutogradTape::start(Source root, TensorRef gradient) {
  count_pending(root.node);
  node(root.node).buffers[root.output] = gradient;
  ++holders_[graph_.storage(gradient)];
  ready_ = {root.node};
}

void AutogradTape::evaluate_ready(bool accumulates) {
  // As unsigned numbers, -1 (a parameter) is the largest.
  const auto later = [this](int a, int b) {
    return static_cast<std::uint64_t>(node(a).sequence) <
           static_cast<std::uint64_t>(node(b).sequence);
  };
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), later);
    const int next = ready_.back();
    ready_.pop_back();
    if (accumulates || node(next).sequence >= 0) evaluate(next);
  }
}

void AutogradTape::run(TensorRef loss) {
  start(producer_.at(loss.index), ones_like(graph_, loss));
  const std::int32_t caller = graph_.thread();
  if (graph_.pytorch().on_gpu()) graph_.switch_thread(GraphBuilder::kAutogradThread);
  evaluate_ready(true);
  if (hooks_.finished) hooks_.finished();
  graph_.switch_thread(caller);
}

std::vector<TensorRef> AutogradTape::run_back(TensorRef output, TensorRef gradient,
                                              const std::vector<TensorRef>& leaves) {
  start(producer_.at(output.index), gradient);
  evaluate_ready(false);
  std::vector<TensorRef> gradients;
  for (const TensorRef leaf : leaves) {
    gradients.push_back(node(producer_.at(leaf.index).node).buffers.front());
  }
  return gradients;
}

void AutogradTape::evaluate(int index) {
  std::vector<TensorRef> arrived;
  std::vector<TensorRef> listed;  // as the observer sees them
  for (TensorRef& buffer : node(index).buffers) {
    arrived.push_back(buffer);
    listed.push_back(buffer.exists() ? buffer : graph_.undefined());
    // A parameter's gradient stays; all others are let go when the function has run.
    if (buffer.exists() && node(index).sequence >= 0) --holders_[graph_.storage(buffer)];
    buffer = {};
  }
  // Without a gradient there is no device: the queue of the CPU, which the caller's thread serves.
  const bool nothing = std::none_of(arrived.begin(), arrived.end(),
                                    [](TensorRef gradient) { return gradient.exists(); });
  const std::int32_t thread = graph_.thread();
  if (nothing) graph_.switch_thread(GraphBuilder::kMainThread);
  graph_.begin_plain("autograd::engine::evaluate_function: " + node(index).name);
  graph_.begin_backward_function(node(index).name, listed, node(index).sequence);
  std::vector<TensorRef> gradients = node(index).backward(arrived);
  graph_.end_op();
  const TensorRef parameter = node(index).parameter;
  if (hooks_.accumulated && gradient(parameter).exists()) {
    gradients_[parameter.index] = hooks_.accumulated(parameter, gradient(parameter));
  }
  const std::vector<Edge>& edges = node(index).edges;
  PERFMODEL_CHECK(gradients.size() == edges.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (edges[i].to.node >= 0 && gradients[i].exists()) {
      gradients[i] = sum_to(graph_, gradients[i], edges[i].shape);
    }
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (edges[i].to.node >= 0) deliver(edges[i].to, gradients[i]);
  }
  graph_.end_op();
  graph_.switch_thread(thread);
}

// Since 2.0, a sum without another holder takes the next addend in place.
bool AutogradTape::may_add_in_place(TensorRef sum) const {
  return !graph_.pytorch().before(2, 0) && graph_.is_dense(sum) &&
         holders_.at(graph_.storage(sum)) == 1;
}

void AutogradTape::deliver(Source to, TensorRef gradient) {
  TapeNode& target = node(to.node);
  TensorRef& sum = target.buffers[to.output];
  if (!gradient.exists()) {
    // nothing to add
  } else if (!sum.exists()) {
    sum = gradient;
    ++holders_[graph_.storage(sum)];
  } else if (may_add_in_place(sum)) {
    add_(graph_, sum, gradient);
  } else {
    const TensorRef made = graph_.new_tensor(graph_.dtype(gradient), graph_.shape(gradient));
    graph_.leaf_op("aten::add.Tensor", {sum, gradient, 1}, {made});
    --holders_[graph_.storage(sum)];
    sum = made;
    ++holders_[graph_.storage(sum)];
  }
  if (--target.pending > 0) return;
  ready_.push_back(to.node);
  std::push_heap(ready_.begin(), ready_.end(), [this](int a, int b) {
    return static_cast<std::uint64_t>(node(a).sequence) <
           static_cast<std::uint64_t>(node(b).sequence);
  });
}

// A parameter without gradient keeps the first one as its own; another is added to.
TensorRef AutogradTape::accumulate(TensorRef kept_gradient, TensorRef gradient) {
  if (kept_gradient.exists() && graph_.is_sparse(kept_gradient)) {
    add_to_empty_sparse(graph_, kept_gradient, gradient);
    return kept_gradient;
  }
  if (graph_.is_sparse(gradient)) return share_sparse(graph_, gradient);
  if (kept_gradient.exists()) {
    add_(graph_, kept_gradient, gradient);
    return kept_gradient;
  }
  return detach(graph_, gradient);
}

}  // namespace perfmodel
