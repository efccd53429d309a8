#include "experts.hpp"

#include "graph_reduction.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

TensorRef compare(AutogradTape& tape, const char* op, TensorRef x, std::int64_t number) {
  GraphBuilder& graph = tape.graph();
  const TensorRef made = graph.new_tensor(DType::kBool, graph.shape(x));
  graph.leaf_op(op, {x, number}, {made}, tape.sequence());
  return made;
}

// The largest of the last axis.
TensorRef max_of_last(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  Shape shape = from;
  shape.pop_back();
  const TensorRef values = graph.new_tensor(graph.dtype(x), shape);
  const TensorRef indices = graph.new_tensor(DType::kInt64, shape);
  graph.leaf_op("aten::max.dim", {x, -1, false}, {values, indices}, tape.sequence());
  return tape.record_unary("MaxBackward0", x, values, [&graph, from, indices](TensorRef gradient) {
    graph.begin_op("aten::value_selecting_reduction_backward",
                   {gradient, -1, indices, from, false});
    const TensorRef each = unsqueeze(graph, gradient, -1);
    const TensorRef rows = unsqueeze(graph, indices, -1);
    const TensorRef made = new_zeros(graph, each, from);
    graph.leaf_op("aten::scatter_.src", {made, -1, rows, each}, {made});
    return graph.end_with(made);
  });
}

// An index that is a mask becomes the coordinates of its ones; their number waits for the device.
void coordinates(GraphBuilder& graph, TensorRef mask, std::int64_t tokens) {
  const TensorRef unsized = graph.new_tensor(DType::kInt64, {tokens, 2});
  graph.leaf_op("aten::nonzero", {mask}, {unsized});
  select(graph, unsized, 1, 0);
  select(graph, unsized, 1, 1);
}

TensorRef pick(GraphBuilder& graph, TensorRef x, TensorRef mask, std::int64_t tokens,
               std::int64_t sequence) {
  const TensorRef made = graph.new_tensor(graph.dtype(x), {tokens, graph.shape(x).back()});
  graph.begin_op("aten::index.Tensor", {x, std::vector<TensorRef>{mask}}, sequence);
  coordinates(graph, mask, tokens);
  return graph.end_with(made);
}

void put_impl(GraphBuilder& graph, TensorRef into, TensorRef mask, TensorRef rows,
              bool accumulate) {
  graph.begin_op("aten::_index_put_impl_", {into, Value::List{mask}, rows, accumulate, accumulate});
  coordinates(graph, mask, graph.shape(rows)[0]);
  graph.end_op({into});
}

TensorRef pick(AutogradTape& tape, TensorRef x, TensorRef mask, std::int64_t tokens) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pick(graph, x, mask, tokens, tape.sequence());
  return tape.record_unary("IndexBackward0", x, out, [&graph, x, mask](TensorRef gradient) {
    const TensorRef made = new_zeros(graph, gradient, graph.shape(x));
    put_impl(graph, made, mask, gradient, true);
    return made;
  });
}

void put(AutogradTape& tape, TensorRef into, TensorRef mask, TensorRef rows) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t tokens = graph.shape(rows)[0];
  graph.begin_op("aten::index_put_", {into, Value::List{mask}, rows, false}, tape.sequence());
  put_impl(graph, into, mask, rows, false);
  graph.end_op({into});
  tape.record("IndexPutBackward0", {into, rows}, into,
              [&graph, mask, rows, tokens](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef none = zeros(graph, graph.dtype(rows), graph.shape(rows));
                graph.begin_op("aten::index_put", {gradient, Value::List{mask}, none, false});
                const TensorRef kept = clone(graph, gradient);
                put_impl(graph, kept, mask, none, false);
                graph.end_op({kept});
                return {kept, pick(graph, gradient, mask, tokens, -1)};
              });
}

}  // namespace

TensorRef one_hot(AutogradTape& tape, TensorRef index, std::int64_t classes) {
  GraphBuilder& graph = tape.graph();
  Shape shape = graph.shape(index);
  shape.push_back(classes);
  graph.begin_op("aten::one_hot", {index, classes}, tape.sequence());
  const TensorRef made = zeros(graph, DType::kInt64, shape);
  const TensorRef rows = unsqueeze(graph, index, -1, tape.sequence());
  graph.leaf_op("aten::scatter_.value", {made, -1, rows, 1}, {made}, tape.sequence());
  return graph.end_with(made);
}

Routing route_to_one(AutogradTape& tape, TensorRef chances, std::int64_t capacity) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = graph.shape(chances);
  const TensorRef likeliest = graph.new_tensor(DType::kInt64, {shape[0], shape[1]});
  graph.leaf_op("aten::argmax", {chances, -1, false}, {likeliest}, tape.sequence());
  const TensorRef chosen = one_hot(tape, likeliest, shape[2]);
  const TensorRef rank = cumsum(graph, chosen, -2, kNone, tape.sequence());
  const TensorRef fits = compare(tape, "aten::le.Scalar", rank, capacity);
  Routing routing;
  routing.mask = mul(tape, chosen, fits);
  routing.chance = unsqueeze(tape, max_of_last(tape, chances), -1);
  return routing;
}

TensorRef through_experts(
    AutogradTape& tape, const Routing& routing, TensorRef x, TensorRef next, std::int64_t tokens,
    std::int64_t experts,
    const std::function<TensorRef(std::int64_t expert, TensorRef rows)>& apply) {
  GraphBuilder& graph = tape.graph();
  for (std::int64_t i = 0; i < experts; ++i) {
    TensorRef column = slice(tape, slice(tape, routing.mask, 0, 0, kSliceEnd), 1, 0, kSliceEnd);
    column = select(tape, column, 2, i);
    const TensorRef mine = to_dtype_alone(graph, column, DType::kBool, tape.sequence());
    put(tape, next, mine, apply(i, pick(tape, x, mine, tokens)));
  }
  return next;
}

}  // namespace perfmodel
