#include "perfmodel/graph/model_size.hpp"

#include <span>
#include <string_view>
#include <unordered_set>

#include "ops/catalogue.hpp"
#include "parameter_gradients.hpp"

namespace perfmodel {
namespace {

class SizeOfModel {
 public:
  explicit SizeOfModel(const ExecutionGraph& graph) : graph_(graph) {}

  ModelSize of_first_step() {
    const auto steps = iterations(graph_);
    if (steps.empty()) return size_;
    const std::vector<bool> of_parameter = parameter_gradients(graph_);
    for (std::int32_t i = steps.front().begin; i < steps.front().end; ++i) {
      add(graph_.nodes[i], of_parameter[i]);
    }
    return size_;
  }

 private:
  void add(const Node& node, bool takes_gradient) {
    const std::string_view name = graph_.name(node);
    if (takes_gradient) {
      const Tensor* gradient = tensor(node, 0);
      if (gradient && gradient->dtype != DType::kUnknown && is_first_of(node)) {
        size_.parameters += elements(*gradient);
      }
    } else if (name.starts_with("fbgemm::split_embedding_codegen_lookup_")) {
      for (std::size_t i : {1U, 2U}) {  // on the device, in host memory
        if (const Tensor* weights = tensor(node, i)) size_.parameters += elements(*weights);
      }
    } else if (node.children_count == 0 || !hands_on(node)) {
      size_.matrix_flop += matrix_flop(name, node);
    }
  }

  // Steps of several backward passes add to the gradients of the first one.
  bool is_first_of(const Node& accumulate) {
    const auto kept = kept_gradient(graph_, accumulate);
    return !kept || gradients_.insert(graph_.tensors[*kept].id).second ||
           !adds_to_gradient(graph_, accumulate);
  }

  // Ops are often dispatched again under their own name; the inner node counts.
  bool hands_on(const Node& node) const {
    for (std::int32_t child : graph_.children(node)) {
      if (graph_.node(child).name == node.name) return true;
    }
    return false;
  }

  double matrix_flop(std::string_view name, const Node& node) const {
    if (is_matrix_product(name)) {
      const std::size_t left = find_op(name)->has_addend ? 1 : 0;
      return matrix_product(tensor(node, left), tensor(node, left + 1));
    }
    if (name == "aten::_scaled_mm" || name == "aten::_scaled_mm_v2") {
      return numbers_per_element(tensor(node, 0)) * product(tensor(node, 0), output(node));
    }
    if (name.starts_with("aten::_grouped_mm") || name.starts_with("aten::_scaled_grouped_mm")) {
      return grouped_product(tensor(node, 0), tensor(node, 1), output(node));
    }
    if (name.starts_with("aten::_scaled_dot_product_")) return attention(name, node);
    if (name == "aten::convolution" || name == "aten::convolution_overrideable") {
      return convolution(output(node), tensor(node, 1), node, 6);
    }
    if (name == "aten::convolution_backward") {
      // Twice the forward product, once where the input needs no gradient.
      const double once = convolution(tensor(node, 0), tensor(node, 2), node, 7);
      const auto inputs = graph_.inputs(node);
      double parts = 0;
      if (inputs.size() > 10 && inputs[10].kind == Argument::Kind::kList) {
        for (const Argument& wanted : graph_.elements(inputs[10]).first(2)) {
          parts += static_cast<double>(wanted.integer);
        }
      }
      return parts * once;
    }
    if (name == "aten::_cudnn_rnn" || name == "aten::miopen_rnn" ||
        name == "recurrent::wavefront") {
      return recurrent(node);
    }
    // Gradients of the inputs and of the weights; cuDNN makes the first ones unasked.
    if (name == "aten::_cudnn_rnn_backward" || name == "aten::miopen_rnn_backward" ||
        name == "recurrent::wavefront_backward") {
      return 2 * recurrent(node);
    }
    return 0;
  }

  // Every matrix among the weights meets every position of the input [.., I] once.
  double recurrent(const Node& node) const {
    const Tensor* input = tensor(node, 0);
    const auto inputs = graph_.inputs(node);
    if (!input || input->rank < 2 || inputs.size() < 2) return 0;
    if (inputs[1].kind != Argument::Kind::kList) return 0;
    const std::int64_t width = graph_.shape(*input)[input->rank - 1U];
    if (width == 0) return 0;
    double weights = 0;
    for (const Argument& weight : graph_.elements(inputs[1])) {
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
  double attention(std::string_view name, const Node& node) const {
    const bool backward = name.ends_with("_backward");
    const Tensor *q = tensor(node, backward ? 1 : 0), *k = tensor(node, backward ? 2 : 1);
    if (!q || !k || q->rank != 4 || k->rank != 4) return 0;
    const std::size_t causal_at = backward ? 11 : name.find("_flash_") != name.npos ? 4 : 6;
    const auto inputs = graph_.inputs(node);
    const bool causal = inputs.size() > causal_at && inputs[causal_at].integer != 0;
    const double one =
        2.0 * static_cast<double>(elements(*q)) * static_cast<double>(graph_.shape(*k)[2]);
    return one * (backward ? 5 : 2) / (causal ? 2 : 1);
  }

  // `transposed_at`: position of that flag among the arguments, 6 forward, 7 backward.
  double convolution(const Tensor* out, const Tensor* weight, const Node& node,
                     std::size_t transposed_at) const {
    if (!out || !weight || weight->rank < 3) return 0;
    const auto sizes = graph_.shape(*weight);
    const auto inputs = graph_.inputs(node);
    const bool transposed = inputs.size() > transposed_at && inputs[transposed_at].integer != 0;
    // A filter [K, C / groups, R, S] meets every output element, a transposed one every input.
    const Tensor* met = !transposed ? out : tensor(node, transposed_at == 6 ? 0 : 1);
    if (!met) return 0;
    return 2.0 * static_cast<double>(elements(*weight) / sizes[0]) *
           static_cast<double>(elements(*met));
  }

  const Tensor* at(std::span<const Argument> arguments, std::size_t i) const {
    if (i >= arguments.size() || arguments[i].kind != Argument::Kind::kTensor) return nullptr;
    return &graph_.tensors[arguments[i].index];
  }
  const Tensor* tensor(const Node& node, std::size_t i) const { return at(graph_.inputs(node), i); }
  const Tensor* output(const Node& node) const { return at(graph_.outputs(node), 0); }

  // Sparse tensors have a shape but no count.
  std::int64_t elements(const Tensor& tensor) const {
    std::int64_t count = 1;
    for (std::int64_t size : graph_.shape(tensor)) count *= size;
    return count;
  }

  const ExecutionGraph& graph_;
  std::unordered_set<std::int64_t> gradients_;  // ids of those that were met
  ModelSize size_;
};

}  // namespace

ModelSize model_size(const ExecutionGraph& graph) { return SizeOfModel(graph).of_first_step(); }

}  // namespace perfmodel
