#include "template_product.hpp"

#include <vector>

namespace perfmodel {
namespace {

std::int64_t size_from_end(const ExecutionGraph& graph, const Tensor& tensor, std::size_t axis) {
  const auto shape = graph.shape(tensor);
  return axis <= shape.size() ? shape[shape.size() - axis] : 0;
}

std::vector<const Tensor*> on_gpu(const ExecutionGraph& graph,
                                  std::span<const Argument> arguments) {
  std::vector<const Tensor*> found;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (tensor.on_gpu()) found.push_back(&tensor);
  });
  return found;
}

std::optional<TemplateProduct> product_of(const ExecutionGraph& graph, const Tensor& left,
                                          const Tensor& right, const Tensor& result) {
  const std::int64_t m = size_from_end(graph, left, 2), k = size_from_end(graph, left, 1),
                     n = size_from_end(graph, right, 1);
  const bool fits = left.rank >= 2 && left.rank == right.rank && m > 0 && n > 0 && k > 0 &&
                    size_from_end(graph, right, 2) == k && left.numel % (m * k) == 0 &&
                    result.numel == left.numel / k * n;
  if (!fits) return std::nullopt;
  return TemplateProduct{&left, &right, &result, left.numel / (m * k), m, n, k};
}

}  // namespace

std::optional<TemplateProduct> template_product(const ExecutionGraph& graph, const Node& node) {
  if (!graph.name(node).starts_with("triton_tem")) return std::nullopt;
  std::vector<const Tensor*> tensors = on_gpu(graph, graph.inputs(node));
  const std::vector<const Tensor*> outputs = on_gpu(graph, graph.outputs(node));
  if (outputs.empty() && tensors.empty()) return std::nullopt;
  const Tensor& result = outputs.empty() ? *tensors.back() : *outputs.front();
  if (outputs.empty()) tensors.pop_back();
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i) {
    if (auto product = product_of(graph, *tensors[i], *tensors[i + 1], result)) return product;
  }
  return std::nullopt;
}

}  // namespace perfmodel
