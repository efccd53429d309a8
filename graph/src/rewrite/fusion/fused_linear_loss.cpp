#include <algorithm>
#include <bit>
#include <memory>

#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/graph_views.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "fused_loss.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows of a chunk, so that its logits take about as much memory as the layer's input.
std::int64_t rows_of_chunk(std::int64_t rows, std::int64_t width, std::int64_t classes) {
  const std::int64_t least = divided_up(rows, divided_up(classes, width));
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

/// LigerFusedLinearCrossEntropyFunction of Liger 0.5 and 0.6, from memory: for each chunk of rows a
/// product, the loss with the gradient in the place of the logits, and the products that make the
/// gradients of input and weight. The whole logits never exist. The backward pass hands these
/// gradients over. Under autocast each product casts its operands again: only the cast of a
/// parameter itself is kept, no cast of a view.
class LinearLoss {
 public:
  LinearLoss(GraphEdit& edit, const StepView& step, const UnfusedLoss& loss, SharedStorages& shared)
      : graph_(edit.builder()), step_(step), loss_(loss), layer_(*loss.layer), shared_(shared) {}

  void forward() {
    const TensorRef target = tensor(loss_.target), x = tensor(layer_.input);
    weight_ = tensor(layer_.weight);
    input_shape_ = graph_.shape(x);
    std::vector<Value> arguments = {x, weight_, target};
    if (layer_.bias) arguments.emplace_back(tensor(layer_.bias));
    graph_.begin_plain("LigerFusedLinearCrossEntropyFunction", arguments, loss_.group.sequence);
    half_ = step_.graph().tensors[layer_.logits->tensor].dtype;
    const Shape rows = {graph_.numel(target), input_shape_.back()};
    const TensorRef input = view(graph_, tokens(x), rows);
    if (has_gradient(layer_.weight)) of_weight_ = zeros_like(graph_, weight_);
    if (has_gradient(layer_.input)) of_input_ = zeros_like(graph_, input);
    if (has_gradient(layer_.bias)) of_bias_ = zeros_like(graph_, tensor(layer_.bias));
    const TensorRef losses = zeros(graph_, DType::kFloat32, {rows[0]});
    write_target_count(graph_, target);
    const std::int64_t step = rows_of_chunk(rows[0], rows[1], graph_.shape(weight_)[0]);
    for (std::int64_t row = 0; row < rows[0]; row += step) {
      const std::int64_t end = std::min(rows[0], row + step);
      const auto part = [&](TensorRef whole) { return slice(graph_, whole, 0, row, end); };
      write_chunk(part(input), part(target), part(losses),
                  of_input_.exists() ? part(of_input_) : TensorRef{});
    }
    const TensorRef result = tensor(loss_.group.result);
    graph_.leaf_op("aten::sum", {losses, kNone}, {result});
    graph_.end_op({result});
  }

  void backward(TensorRef gradient, const std::vector<TensorRef>& parts) {
    std::vector<TensorRef> made;
    for (const TensorRef one : {of_input_, of_weight_, of_bias_}) {
      if (one.exists()) made.push_back(one);
    }
    write_scaling(graph_, loss_, gradient, made);
    const auto give = [&](const Version* of, TensorRef made_before) {
      const HandedGradient* handed = gradient_of(step_, loss_.group, of);
      if (!handed || !made_before.exists()) return;
      const auto part = parts[static_cast<std::size_t>(handed - loss_.group.handed.data())];
      hand_over(graph_, made_before, part, shared_);
    };
    give(layer_.input, layer_.slice ? with_other_tokens() : of_input_);
    give(layer_.weight, of_weight_);
    give(layer_.bias, of_bias_);
  }

 private:
  TensorRef tensor(const Version* version) { return graph_.tensor_of_source(version->tensor); }
  bool has_gradient(const Version* version) const {
    return gradient_of(step_, loss_.group, version) != nullptr;
  }

  // The tokens that have a target, as the source cuts the logits.
  TensorRef tokens(TensorRef x) {
    if (!layer_.slice) return x;
    const auto inputs = step_.graph().inputs(*layer_.slice);
    begin_ = inputs.size() > 2 ? inputs[2].integer : 0;
    end_ = inputs.size() > 3 ? inputs[3].integer : kSliceEnd;
    return clone(graph_, slice(graph_, x, 1, begin_, end_));
  }
  TensorRef with_other_tokens() {
    graph_.begin_op("aten::slice_backward", {of_input_, input_shape_, 1, begin_, end_, 1});
    const TensorRef made = zeros(graph_, graph_.dtype(of_input_), input_shape_);
    const TensorRef place = slice(graph_, made, 1, begin_, end_);
    copy(graph_, place, view(graph_, of_input_, graph_.shape(place)));
    return graph_.end_with(made);
  }

  // torch.matmul, under autocast where the source's layer was.
  TensorRef product(TensorRef a, TensorRef b) {
    const TensorRef left = cast(a), right = cast(b);
    return mm(graph_, left, right);
  }
  TensorRef cast(TensorRef x) { return graph_.dtype(x) == half_ ? x : to_dtype(graph_, x, half_); }

  void write_chunk(TensorRef input, TensorRef target, TensorRef losses, TensorRef of_input) {
    TensorRef logits = product(input, t(graph_, weight_));
    if (layer_.bias) {
      const TensorRef sum = like(graph_, logits);
      graph_.leaf_op("aten::add.Tensor", {logits, tensor(layer_.bias), 1}, {sum});
      logits = sum;
    }
    write_cross_entropy(graph_, logits, target, losses);
    if (of_input.exists()) {
      if (!half_weight_.exists()) half_weight_ = cast(weight_);
      copy(graph_, of_input, product(logits, half_weight_));
    }
    if (of_weight_.exists()) add_to_weight(logits, input);
    if (of_bias_.exists()) {
      const TensorRef sum = like(graph_, of_bias_);
      graph_.leaf_op("aten::sum.dim_IntList", {logits, Shape{0}, false, kNone}, {sum});
      add_(graph_, of_bias_, sum);
    }
  }

  // One op if all types are the same.
  void add_to_weight(TensorRef logits, TensorRef input) {
    if (graph_.dtype(of_weight_) == half_ && graph_.dtype(input) == half_) {
      graph_.leaf_op("aten::addmm.out", {of_weight_, t(graph_, logits), input, 1, 1, of_weight_},
                     {of_weight_});
    } else {
      add_(graph_, of_weight_, product(t(graph_, logits), input));
    }
  }

  GraphBuilder& graph_;
  const StepView& step_;
  const UnfusedLoss& loss_;
  const LogitsLayer& layer_;
  SharedStorages& shared_;
  DType half_ = DType::kUnknown;  // type of the products
  Shape input_shape_ = {};
  std::int64_t begin_ = 0, end_ = 0;
  TensorRef weight_ = {}, half_weight_ = {}, of_input_ = {}, of_weight_ = {}, of_bias_ = {};
};

}  // namespace

void replace_linear_loss(GraphEdit& edit, const StepView& step, const UnfusedLoss& loss,
                         SharedStorages& shared) {
  const auto writer = std::make_shared<LinearLoss>(edit, step, loss, shared);
  replace_group(
      edit, step, loss.group, [writer] { writer->forward(); },
      "LigerFusedLinearCrossEntropyFunctionBackward",
      [writer](TensorRef gradient, const std::vector<TensorRef>& parts) {
        writer->backward(gradient, parts);
      });
}

}  // namespace perfmodel
