#include "grad_scaler.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/losses.hpp"
#include "step/parameter_gradients.hpp"

namespace perfmodel {
namespace {

constexpr double kGrowth = 2.0, kBackoff = 0.5;
constexpr std::int64_t kInterval = 2000;  // defaults of PyTorch

class GradScaler {
 public:
  explicit GradScaler(const StepView& step)
      : source_(step.graph()),
        losses_(losses(step)),
        scaled_(step.tensors()),
        edit_(source_, {}),
        builder_(edit_.builder()),
        scale_(builder_.new_tensor(DType::kFloat32, {})),
        growth_tracker_(builder_.new_tensor(DType::kInt32, {})) {
    for (const Loss& loss : losses_) {
      edit_.precede(loss.ones, [this, &loss] { scale(loss); });
      edit_.follow_tree(loss.ones,
                        [this, &loss] { scaled_[source_.tensors[loss.tensor]].reset(); });
      edit_.precede(loss.function.evaluate, [this, &loss] { scale_gradient(loss); });
    }
    auto function = step.backward().functions.begin();
    const auto end = step.backward().functions.end();
    for (const std::int32_t label : optimizer_steps(source_)) {
      std::vector<std::uint32_t> gradients;
      for (; function != end && function->evaluate < label; ++function) {
        if (!function->accumulates()) continue;
        const auto kept = kept_gradient(source_, source_.node(function->function));
        if (kept) gradients.push_back(*kept);
      }
      if (gradients.empty()) continue;
      edit_.precede(label, [this, label, gradients] { unscale(label, gradients); });
      edit_.follow_tree(label, [this, label] { update(label); });
    }
    edit_.on_each_copy([this](std::int32_t node, Node& copy) { change(node, copy); });
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  // Products of losses have numbers of their own, which later ops make room for.
  std::int64_t shift(std::int64_t sequence) const {
    return std::ranges::count_if(
        losses_, [&](const Loss& loss) { return loss.function.sequence < sequence; });
  }

  void change(std::int32_t node, Node& copy) {
    if (copy.seq_id >= 0) copy.seq_id += shift(copy.seq_id);
    for (const auto arguments : {source_.inputs(node), source_.outputs(node)}) {
      for_each_tensor(source_, arguments, [&](const Tensor& tensor) {
        const std::optional<Tensor>& by = scaled_[tensor];
        if (!by) return;
        Tensor& mention = edit_.made().tensors[&tensor - source_.tensors.data()];
        mention.id = by->id;
        mention.storage_id = by->storage_id;
      });
    }
  }

  std::int64_t number(const Loss& loss) const {
    return loss.function.sequence + shift(loss.function.sequence) + 1;
  }

  // scale(loss): the loss times the scale.
  void scale(const Loss& loss) {
    edit_.copy().close_beside(loss.ones);
    to(builder_, scale_, scale_, {.non_blocking = true}, number(loss));
    multiply(loss.tensor, builder_.tensor_of_source(loss.tensor), number(loss));
  }

  void scale_gradient(const Loss& loss) {
    const TensorRef gradient = builder_.tensor_of_source(loss.gradient);
    edit_.copy().begin_function(loss.function, "MulBackward0", gradient, number(loss));
    multiply(loss.gradient, gradient, -1);
    builder_.end_op();
    builder_.end_op();
  }

  void multiply(std::uint32_t tensor, TensorRef x, std::int64_t sequence) {
    mul(builder_, x, scale_, sequence);
    scaled_[source_.tensors[tensor]] = edit_.made().tensors.back();
  }

  // step(), up to the optimizer's own.
  void unscale(std::int32_t label, const std::vector<std::uint32_t>& kept) {
    edit_.copy().close_beside(label);
    std::vector<TensorRef> gradients;
    for (const std::uint32_t one : kept) gradients.push_back(builder_.tensor_of_source(one));
    const TensorRef wide = to_dtype(builder_, scale_, DType::kFloat64);
    const TensorRef inverse = to_dtype(builder_, reciprocal(builder_, wide), DType::kFloat32);

    const int code = scalar_type_code(DType::kFloat32);
    const TensorRef zero = builder_.new_tensor(DType::kFloat32, {});
    builder_.begin_op("aten::full", {Shape{}, 0.0, code, kNone, builder_.device_value(), kNone});
    allocate(builder_, zero, {.layout = false});
    fill(builder_, zero, 0.0);
    builder_.end_op({zero});

    found_inf_ = copy(zero);  // one per device
    const TensorRef inverse_here = copy(inverse);
    builder_.leaf_op("aten::_amp_foreach_non_finite_check_and_unscale_",
                     {gradients, found_inf_, inverse_here}, {});
    item(builder_, found_inf_, 0.0);
  }

  void update(std::int32_t label) {
    edit_.copy().close_beside(label);
    to(builder_, found_inf_, found_inf_, {.non_blocking = true});
    builder_.leaf_op("aten::_amp_update_scale_",
                     {scale_, growth_tracker_, found_inf_, kGrowth, kBackoff, kInterval}, {scale_});
  }

  TensorRef copy(TensorRef from) {
    const TensorRef made = builder_.new_tensor(DType::kFloat32, {});
    to(builder_, from, made, {.non_blocking = true, .always_copies = true});
    return made;
  }

  const ExecutionGraph& source_;
  const std::vector<Loss> losses_;
  FactsOfValues<std::optional<Tensor>> scaled_;  // products in place of losses and gradients
  GraphEdit edit_;
  GraphBuilder& builder_;
  TensorRef scale_, growth_tracker_, found_inf_;
};

}  // namespace

ExecutionGraph with_grad_scaler(const StepView& step) { return GradScaler(step).write(); }

}  // namespace perfmodel
