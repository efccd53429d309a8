#include <algorithm>
#include <unordered_set>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace {

bool is_image(const ExecutionGraph& graph, const Tensor& tensor) {
  const auto shape = graph.shape(tensor);
  if (tensor.rank < 4 || shape[1] <= 1) return false;
  return std::any_of(shape.begin() + 2, shape.end(), [](std::int64_t size) { return size > 1; });
}

template <class Each>
void for_each_image(const ExecutionGraph& graph, std::span<const Argument> arguments, Each each) {
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (is_image(graph, tensor)) each(tensor);
  });
}

}  // namespace

Result<ExecutionGraph> rewrite_channels_last(const ExecutionGraph& graph) {
  ExecutionGraph made = graph;
  std::unordered_set<std::int64_t> ids;  // of images that have come so far
  bool any = false;
  const auto mark = [&](const Tensor& tensor) {
    ids.insert(tensor.id);
    made.tensors[&tensor - graph.tensors.data()].is_channels_last = true;
  };
  for (const Node& node : graph.nodes) {
    const bool convolves = is_convolution(graph.name(node));
    bool marks = convolves;
    for_each_image(graph, graph.inputs(node),
                   [&](const Tensor& tensor) { marks |= ids.contains(tensor.id); });
    any |= convolves;
    for (const auto arguments : {graph.inputs(node), graph.outputs(node)}) {
      for_each_image(graph, arguments, [&](const Tensor& tensor) {
        if (marks) {
          mark(tensor);
        } else if (!is_empty(graph.name(node))) {  // its op has told
          ids.erase(tensor.id);                    // another tensor at an address that was freed
        }
      });
    }
  }
  if (!any) {
    return fail(ErrorCode::kImpossible, "expected a convolution to lay out images for, found none");
  }
  return made;
}

}  // namespace perfmodel
