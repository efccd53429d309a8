#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <type_traits>
#include <vector>

#include "builders/emit/optimizers.hpp"

namespace perfmodel {

/// Update of one parameter in a step; tensors by index in the graph, -1: none.
struct ReadUpdate {
  /// The gradient as the backward pass left it: a step may cast it to the parameter's type first.
  std::int64_t parameter = -1, gradient = -1, step = -1, first = -1, second = -1;
  std::int64_t first_scale = -1, second_scale = -1;  ///< for state in 8 bits
  /// The model's own weight, where the parameter is the optimizer's copy in a wider type, which the
  /// step writes back.
  std::int64_t weight = -1;
  bool sparse = false;        ///< the gradient is
  std::int32_t last_op = -1;  ///< node that changes the parameter
};

/// Parameters that are treated alike: a parameter group, or part of one.
struct ReadGroup {
  OptimizerSettings settings;
  std::vector<ReadUpdate> updates;
};

struct ReadStep {
  std::int32_t label = -1;              ///< "Optimizer.step#SGD.step"
  std::vector<std::int32_t> first;      ///< views and allocations before the updates
  std::vector<ReadGroup> groups;        ///< neighbours of equal settings are one
  bool before_2 = false, is_2 = false;  ///< ops that only PyTorch 1.13 or 2 writes were met
};

/// By label "Optimizer.step#...".
using OptimizerSteps = std::map<std::int32_t, ReadStep>;

/// Updates of all parameters in all steps, in order.
template <class Steps>
auto updates_of(Steps& steps) {
  using Update = std::conditional_t<std::is_const_v<Steps>, const ReadUpdate, ReadUpdate>;
  std::vector<std::reference_wrapper<Update>> all;
  for (auto& [label, step] : steps) {
    for (auto& group : step.groups) {
      all.insert(all.end(), group.updates.begin(), group.updates.end());
    }
  }
  return all;
}

/// Whether a node is part of a step of an optimizer or of zero_grad.
bool is_under_optimizer(const ExecutionGraph& graph, std::int32_t node);
/// Whether a node is a label "Optimizer.zero_grad#...".
bool is_zero_grad(const ExecutionGraph& graph, std::int32_t node);

/// "Optimizer.step#..." labels in start order.
std::vector<std::int32_t> optimizer_steps(const ExecutionGraph& graph);

/// Understands loop, foreach and fused steps of SGD, momentum, Adagrad, Adam and AdamW as PyTorch
/// 1.13 and 2 write them, Adagrad and SparseAdam of sparse gradients, 8-bit Adam as bitsandbytes
/// calls it, gradients that are cast before the updates and weights into which their wider copies
/// are written back after them. Numbers without an argument (momentum, eps in loops, the decay of
/// AdamW) are taken as PyTorch's defaults. Fails at an op that belongs to none of them, naming it.
Result<ReadStep> read_optimizer_step(const ExecutionGraph& graph, std::int32_t label);

/// Children of a node in start order.
std::vector<std::int32_t> children_in_order(const ExecutionGraph& graph, const Node& node);

}  // namespace perfmodel
