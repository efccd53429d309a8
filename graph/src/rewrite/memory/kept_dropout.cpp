#include "kept_dropout.hpp"

#include <tuple>

#include "ops/schemas.hpp"

namespace perfmodel {

using Kind = Argument::Kind;

bool draws_mask(const ExecutionGraph& graph, const Node& node) {
  if (graph.name(node) != "aten::native_dropout") return false;
  const auto inputs = graph.inputs(node), outputs = graph.outputs(node);
  return inputs.size() >= 2 && inputs[0].kind == Kind::kTensor && inputs[1].kind == Kind::kDouble &&
         inputs[1].real < 1 && outputs.size() >= 2 && outputs[0].kind == Kind::kTensor &&
         outputs[1].kind == Kind::kTensor;
}

Node scaled_by_kept_mask(GraphBuilder& builder, const Node& node) {
  ExecutionGraph& made = builder.graph_being_made();
  const std::uint32_t x = made.inputs(node)[0].index, result = made.outputs(node)[0].index,
                      mask = made.outputs(node)[1].index;
  const double dropped = made.inputs(node)[1].real;
  Node copy = node;
  copy.name = made.names.intern("aten::_masked_scale");
  copy.op_schema = made.names.intern(schema_of("aten::_masked_scale"));
  std::tie(copy.inputs_begin, copy.inputs_count) = builder.append(
      {builder.tensor_of_source(x), builder.tensor_of_source(mask), 1.0 / (1.0 - dropped)});
  std::tie(copy.outputs_begin, copy.outputs_count) =
      builder.append({builder.tensor_of_source(result)});
  return copy;
}

}  // namespace perfmodel
