#include "native_batch_norms.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kForward = "aten::cudnn_batch_norm";
constexpr std::string_view kBackward = "aten::cudnn_batch_norm_backward";
constexpr std::size_t kStatistics = 2;  // mean and inverse deviation, after the result

bool library_refuses(const ExecutionGraph& graph, const Node& node) {
  const auto inputs = graph.inputs(node);
  return !inputs.empty() && inputs[0].kind == Argument::Kind::kTensor &&
         !library_takes_batch_norm(graph.tensors[inputs[0].index].dtype);
}

// cuDNN's are (input, weight, bias, running mean, running variance, training, momentum, epsilon) ->
// (result, mean, inverse deviation, reserve) and (input, gradient, weight, running mean, running
// variance, mean, inverse deviation, epsilon, reserve) -> (gradients of input, weight, bias).
class NativeBatchNorm {
 public:
  NativeBatchNorm(GraphEdit& edit, std::int32_t node) : edit_(edit), node_(node) {}

  void write_forward() const {
    edit_.copy().close_to(node_);
    if (outputs().size() > kStatistics + 1) {
      allocate(graph(), edit_.copy().tensor(outputs()[kStatistics + 1]));  // the reserve
    }
    graph().begin_op("aten::native_batch_norm",
                     {input(0), input(1), input(2), input(3), input(4), inputs()[5].integer != 0,
                      inputs()[6].real, inputs()[7].real},
                     source().seq_id);
    write_results();
  }

  void write_backward() const {
    edit_.copy().close_to(node_);
    graph().begin_op("aten::native_batch_norm_backward",
                     {input(1), input(0), input(2), input(3), input(4), input(5), input(6), true,
                      inputs()[7].real, Value::List{true, true, true}},
                     source().seq_id);
    write_results();
  }

 private:
  GraphBuilder& graph() const { return edit_.builder(); }
  const Node& source() const { return edit_.source().node(node_); }
  std::span<const Argument> inputs() const { return edit_.source().inputs(source()); }
  std::span<const Argument> outputs() const { return edit_.source().outputs(source()); }

  Value input(std::size_t at) const {
    if (inputs()[at].kind != Argument::Kind::kTensor) return kNone;
    return edit_.copy().tensor(inputs()[at]);
  }

  void write_results() const {
    std::vector<Value> results;
    for (std::size_t i = 0; i <= kStatistics; ++i) {
      const TensorRef made = edit_.copy().tensor(outputs()[i]);
      allocate(graph(), made);
      results.emplace_back(made);
    }
    graph().end_op(std::move(results));
  }

  GraphEdit& edit_;
  std::int32_t node_;
};

// The op that chooses says which library it took, and functions of autograd have its name.
void rename(ExecutionGraph& made, Node& copy) {
  std::string name(made.name(copy));
  if (name == "aten::_batch_norm_impl_index" && copy.outputs_count == 5) {
    made.arguments[copy.outputs_begin + 4].integer = 0;
  }
  constexpr std::string_view kLibrary = "CudnnBatchNormBackward";
  const std::size_t at = name.find(kLibrary);
  if (at == std::string::npos) return;
  copy.name = made.names.intern(name.replace(at, kLibrary.size(), "NativeBatchNormBackward"));
}

}  // namespace

ExecutionGraph with_native_batch_norms(const ExecutionGraph& graph) {
  const StepView step(graph);
  GraphEdit edit(graph, step.dialect());
  std::vector<bool> above(graph.nodes.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const std::string_view name = graph.name(i);
    const bool forward = name == kForward;
    if ((!forward && name != kBackward) || !library_refuses(graph, graph.node(i))) continue;
    edit.replace(i, [norm = NativeBatchNorm(edit, i), forward] {
      forward ? norm.write_forward() : norm.write_backward();
    });
    for (std::int32_t at = graph.node(i).parent; at >= 0; at = graph.node(at).parent) {
      above[at] = true;
    }
  }
  edit.on_each_copy([&](std::int32_t node, Node& copy) {
    if (above[node]) rename(edit.made(), copy);
  });
  return std::ranges::find(above, true) == above.end() ? graph : edit.write();
}

}  // namespace perfmodel
