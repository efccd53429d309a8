#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "autocast_plan.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {

std::vector<const Tensor*> tensors_of(const ExecutionGraph& graph,
                                      std::span<const Argument> arguments);

/// Plans ops one after the other, in both passes: which type each tensor has, and which casts come
/// before an op.
class AutocastOps {
 public:
  AutocastOps(const StepView& step, const std::vector<bool>& region, const AutocastOptions& options,
              AutocastPlan& plan);

  /// Plans an op and those below it. `around`: the type in which the op above computes.
  void plan_tree(std::int32_t node, DType around = DType::kUnknown);

  /// A tensor as it is at this point.
  RetypedTensor retyped(const Tensor& tensor) const;
  /// Writes tensors of arguments into the plan as they are at this point.
  void mention(std::span<const Argument> arguments);
  /// Plans with other tensors in place of some.
  template <class Plan>
  void with(std::vector<ReplacedTensor> replaced, Plan&& plan) {
    for (ReplacedTensor& one : replaced) std::swap(types_[*one.tensor], one.by);
    plan();
    std::reverse(replaced.begin(), replaced.end());
    for (ReplacedTensor& one : replaced) std::swap(types_[*one.tensor], one.by);
  }
  RetypedTensor add_cast(const PlannedCast& cast);

  /// Leaving the context of autocast forgets the casts of parameters.
  void forget_parameters();
  /// `forward`: the op whose gradient the ops to come compute, -1: none.
  void set_forward(std::int32_t forward) { forward_ = forward; }
  /// The autocast op whose gradient a function computes, -1: none.
  std::int32_t owner_of(const BackwardFunction& function) const {
    return function.forward < 0 ? -1 : owner_[function.forward];
  }

 private:
  AutocastPolicy policy(std::int32_t node) const;
  void plan_op(std::int32_t node, DType around, bool fp32_result = false);
  void plan_fp32_result(std::int32_t node, DType around);
  DType begin(std::int32_t node, DType around, bool fp32_result);

  void cast_arguments(std::int32_t op, DType target);
  void cast(std::int32_t op, const Tensor& tensor, DType target, bool by_options);
  bool is_parameter(std::int32_t op, const Tensor& tensor, std::ptrdiff_t position);
  std::int64_t next_number(std::int32_t op) const;

  bool takes_fp32(const Node& node) const;
  DType common_type(const Node& node) const;
  const Tensor* first_fp32(const Node& node) const;
  DType result_type(std::int32_t node, DType type, DType around, bool fp32_result);
  void assign_results(const Node& node, DType type);

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  const AutocastOptions options_;
  AutocastPlan& plan_;
  std::vector<std::int32_t> owner_;  // by node: the autocast op that it is or that is around it
  FactsOfValues<RetypedTensor> types_;
  FactsOfValues<RetypedTensor> parameter_casts_;                     // into AutocastPlan::casts
  std::vector<std::vector<const Tensor*>> gradients_of_parameters_;  // by autocast op
  std::int64_t shift_ = 0;                                           // added to autograd's numbers
  std::int32_t forward_ = -1;
};

}  // namespace perfmodel
