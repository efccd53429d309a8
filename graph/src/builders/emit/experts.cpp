#include "experts.hpp"

#include "embedding_lookup.hpp"
#include "graph_views.hpp"
#include "index.hpp"
#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {

TensorRef grouped_mm(GraphBuilder& graph, TensorRef a, TensorRef b, TensorRef ends,
                     std::int64_t sequence) {
  const Shape &left = graph.shape(a), &right = graph.shape(b);
  const Shape shape =
      right.size() == 3 ? Shape{left[0], right[2]} : Shape{graph.numel(ends), left[0], right[1]};
  return graph.leaf("aten::_grouped_mm", {a, b, ends, kNone, kNone},
                    graph.new_tensor(graph.dtype(a), shape), sequence);
}

// Gradients as _grouped_mm_mat1_backward and _grouped_mm_mat2_backward write them for column-major
// matrices.
TensorRef grouped_linear(AutogradTape& tape, TensorRef rows, TensorRef weights, TensorRef ends) {
  GraphBuilder& graph = tape.graph();
  const TensorRef matrices = transpose(tape, weights, -2, -1);
  const TensorRef out = grouped_mm(graph, rows, matrices, ends, tape.sequence());
  tape.record("GroupedMmBackward0", {rows, matrices}, out,
              [&tape, &graph, rows, matrices, ends](TensorRef gradient) {
                std::vector<TensorRef> gradients(2);
                if (tape.requires_grad(rows)) {
                  gradients[0] =
                      grouped_mm(graph, gradient, transpose(graph, matrices, -2, -1), ends);
                }
                const TensorRef columns = transpose(graph, gradient, -2, -1);
                gradients[1] = transpose(graph, grouped_mm(graph, columns, rows, ends), -2, -1);
                return gradients;
              });
  return out;
}

std::vector<TensorRef> top_k_of_last(AutogradTape& tape, TensorRef x, std::int64_t k) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  Shape shape = from;
  shape.back() = k;
  const TensorRef values = graph.new_tensor(graph.dtype(x), shape);
  const TensorRef indices = graph.new_tensor(DType::kInt64, shape);
  graph.leaf_op("aten::topk", {x, k, -1, true, true}, {values, indices}, tape.sequence());
  tape.record_unary("TopkBackward0", x, values, [&graph, from, indices](TensorRef gradient) {
    graph.begin_op("aten::value_selecting_reduction_backward", {gradient, -1, indices, from, true});
    const TensorRef made = new_zeros(graph, gradient, from);
    graph.leaf_op("aten::scatter_.src", {made, -1, indices, gradient}, {made});
    return graph.end_with(made);
  });
  return {values, indices};
}

TensorRef sorted_places(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef values = like(graph, x), order = graph.new_tensor(DType::kInt64, graph.shape(x));
  graph.begin_op("aten::argsort", {x, -1, false}, tape.sequence());
  graph.leaf_op("aten::sort", {x, -1, false}, {values, order}, tape.sequence());
  return graph.end_with(order);
}

TensorRef add_rows(AutogradTape& tape, TensorRef x, TensorRef places, TensorRef rows) {
  GraphBuilder& graph = tape.graph();
  index_add_in_place(graph, x, places, rows, 1, tape.sequence());
  tape.record("IndexAddBackward0", {x, rows}, x,
              [&graph, places](TensorRef gradient) -> std::vector<TensorRef> {
                return {TensorRef{}, index_select(graph, gradient, places)};
              });
  return x;
}

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

namespace {

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

}  // namespace

TensorRef pick_rows_of_mask(AutogradTape& tape, TensorRef x, TensorRef mask, std::int64_t tokens) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pick(graph, x, mask, tokens, tape.sequence());
  return tape.record_unary("IndexBackward0", x, out, [&graph, x, mask](TensorRef gradient) {
    const TensorRef made = new_zeros(graph, gradient, graph.shape(x));
    put_impl(graph, made, mask, gradient, true);
    return made;
  });
}

void put_rows(AutogradTape& tape, TensorRef into, TensorRef mask, TensorRef rows) {
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

}  // namespace perfmodel
