#include "perfmodel/graph/model_size.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "ops/catalogue.hpp"
#include "ops/template_product.hpp"
#include "parameter_gradients.hpp"
#include "step_view.hpp"

namespace perfmodel {
namespace {

/// Sizes of the tensors of one op.
class OpSizes {
 public:
  OpSizes(const ExecutionGraph& graph, const Node& node)
      : graph_(graph), node_(node), inputs_(graph.inputs(node)) {}

  const Tensor* tensor(std::size_t i) const { return at(inputs_, i); }
  const Tensor* output() const { return at(graph_.outputs(node_), 0); }

  // Sparse tensors have a shape but no count.
  std::int64_t elements(const Tensor& tensor) const {
    std::int64_t count = 1;
    for (std::int64_t size : graph_.shape(tensor)) count *= size;
    return count;
  }

  double matrix_flop() const {
    const std::string_view name = graph_.name(node_);
    if (is_matrix_product(name)) {
      const std::size_t left = find_op(name)->has_addend ? 1 : 0;
      return matrix_product(tensor(left), tensor(left + 1));
    }
    if (name == "aten::_scaled_mm" || name == "aten::_scaled_mm_v2") {
      return numbers_per_element(tensor(0)) * product(tensor(0), output());
    }
    if (name.starts_with("aten::_grouped_mm") || name.starts_with("aten::_scaled_grouped_mm")) {
      return grouped_product(tensor(0), tensor(1), output());
    }
    if (name.starts_with("aten::_scaled_dot_product_")) return attention(name);
    if (name == "aten::convolution" || name == "aten::convolution_overrideable") {
      return convolution(output(), tensor(1), 6);
    }
    if (name == "aten::convolution_backward") {
      // Twice the forward product, once if the input needs no gradient.
      const double once = convolution(tensor(0), tensor(2), 7);
      double parts = 0;
      if (inputs_.size() > 10 && inputs_[10].kind == Argument::Kind::kList) {
        for (const Argument& wanted : graph_.elements(inputs_[10]).first(2)) {
          parts += static_cast<double>(wanted.integer);
        }
      }
      return parts * once;
    }
    if (name == "aten::_cudnn_rnn" || name == "aten::miopen_rnn" ||
        name == "recurrent::wavefront") {
      return recurrent();
    }
    // Gradients of the inputs and of the weights; cuDNN makes the first ones unasked.
    if (name == "aten::_cudnn_rnn_backward" || name == "aten::miopen_rnn_backward" ||
        name == "recurrent::wavefront_backward") {
      return 2 * recurrent();
    }
    if (const auto product = template_product(graph_, node_)) {
      return matrix_product(product->left, product->right);
    }
    return 0;
  }

 private:
  // Every matrix among the weights meets every position of the input [.., I] once.
  double recurrent() const {
    const Tensor* input = tensor(0);
    if (!input || input->rank < 2 || inputs_.size() < 2) return 0;
    if (inputs_[1].kind != Argument::Kind::kList) return 0;
    const std::int64_t width = graph_.shape(*input)[input->rank - 1U];
    if (width == 0) return 0;
    double weights = 0;
    for (const Argument& weight : graph_.elements(inputs_[1])) {
      if (weight.kind != Argument::Kind::kTensor) continue;
      const Tensor& matrix = graph_.tensors[weight.index];
      if (matrix.rank == 2) weights += static_cast<double>(elements(matrix));
    }
    return 2.0 * static_cast<double>(elements(*input) / width) * weights;
  }

  // [.., M, K] times [.., K, N]: each element of the left one meets a row of the right one.
  double matrix_product(const Tensor* left, const Tensor* right) const {
    if (!left || !right || left->rank < 2 || right->rank < 2) return 0;
    return 2.0 * static_cast<double>(elements(*left)) *
           static_cast<double>(graph_.shape(*right)[right->rank - 1U]);
  }

  // The same, by the columns of the left one and all results.
  double product(const Tensor* left, const Tensor* result) const {
    if (!left || !result || left->rank < 2) return 0;
    return 2.0 * static_cast<double>(graph_.shape(*left)[left->rank - 1U]) *
           static_cast<double>(elements(*result));
  }

  // Each row meets the one matrix of its group: rows [T, K] make [T, N]; columns [M, T] and rows
  // [T, N] make [E, M, N].
  double grouped_product(const Tensor* left, const Tensor* right, const Tensor* result) const {
    if (!left || !right || !result || left->rank != 2) return 0;
    const double once = numbers_per_element(left) * product(left, result);
    return result->rank == 3 ? once / static_cast<double>(graph_.shape(*result)[0]) : once;
  }

  // Pairs of numbers in 4 bits are one element.
  static double numbers_per_element(const Tensor* operand) {
    return operand && operand->dtype == DType::kFloat4 ? 2 : 1;
  }

  // q [B, H, S, D], k [B, H, T, D]: two products forward; backward four and once more the scores.
  // A causal kernel leaves out half of them.
  double attention(std::string_view name) const {
    const bool backward = name.ends_with("_backward");
    const Tensor *q = tensor(backward ? 1 : 0), *k = tensor(backward ? 2 : 1);
    if (!q || !k || q->rank != 4 || k->rank != 4) return 0;
    const std::size_t causal_at = backward ? 11 : name.find("_flash_") != name.npos ? 4 : 6;
    const bool causal = inputs_.size() > causal_at && inputs_[causal_at].integer != 0;
    const double one =
        2.0 * static_cast<double>(elements(*q)) * static_cast<double>(graph_.shape(*k)[2]);
    return one * (backward ? 5 : 2) / (causal ? 2 : 1);
  }

  // `transposed_at`: position of that flag among the arguments, 6 forward, 7 backward.
  double convolution(const Tensor* out, const Tensor* weight, std::size_t transposed_at) const {
    if (!out || !weight || weight->rank < 3) return 0;
    const auto sizes = graph_.shape(*weight);
    const bool transposed = inputs_.size() > transposed_at && inputs_[transposed_at].integer != 0;
    // A filter [K, C / groups, R, S] meets every output element, a transposed one every input.
    const Tensor* met = !transposed ? out : tensor(transposed_at == 6 ? 0 : 1);
    if (!met) return 0;
    return 2.0 * static_cast<double>(elements(*weight) / sizes[0]) *
           static_cast<double>(elements(*met));
  }

  const Tensor* at(std::span<const Argument> arguments, std::size_t i) const {
    if (i >= arguments.size() || arguments[i].kind != Argument::Kind::kTensor) return nullptr;
    return &graph_.tensors[arguments[i].index];
  }

  const ExecutionGraph& graph_;
  const Node& node_;
  std::span<const Argument> inputs_;
};

// Ops are often dispatched again under their own name; the inner node counts.
bool hands_on(const ExecutionGraph& graph, const Node& node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
    return graph.node(child).name == node.name;
  });
}

}  // namespace

ModelSize model_size(const ExecutionGraph& graph) {
  const StepView step(graph);
  const GraphIteration window = first_step(graph);
  const auto adds = [&](std::int32_t i) {
    return step.parameter_gradients()[i] && adds_to_gradient(graph, graph.node(i));
  };
  // Steps of several backward passes add to the gradients of the first one. Only for those steps
  // versions of ids are found.
  std::optional<FactsOfValues<char>> is_counted;
  for (std::int32_t i = window.begin; i < window.end && !is_counted; ++i) {
    if (adds(i)) is_counted.emplace(step.tensors());
  }
  const auto is_first = [&](std::int32_t i) {
    if (!is_counted) return true;
    const auto kept = kept_gradient(step.graph(), step.graph().node(i));
    return !kept || !std::exchange((*is_counted)[step.graph().tensors[*kept]], true) || !adds(i);
  };
  ModelSize size;
  for (std::int32_t i = window.begin; i < window.end; ++i) {
    const Node& node = graph.node(i);
    const OpSizes op(graph, node);
    if (step.parameter_gradients()[i]) {
      const Tensor* gradient = op.tensor(0);
      if (gradient && gradient->dtype != DType::kUnknown && is_first(i)) {
        size.parameters += op.elements(*gradient);
      }
    } else if (graph.name(node).starts_with("fbgemm::split_embedding_codegen_lookup_")) {
      for (const std::size_t at : {1U, 2U}) {  // on the device, in host memory
        if (const Tensor* weights = op.tensor(at)) size.parameters += op.elements(*weights);
      }
    } else if (!hands_on(graph, node)) {
      size.matrix_flop += op.matrix_flop();
    }
  }
  return size;
}

}  // namespace perfmodel
