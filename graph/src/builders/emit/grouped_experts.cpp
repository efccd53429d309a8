#include "grouped_experts.hpp"

#include "embedding_lookup.hpp"
#include "experts.hpp"
#include "graph_views.hpp"
#include "index.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "softmax.hpp"
#include "update.hpp"
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

namespace {

struct Best {
  TensorRef values, indices;
};

Best top_k_of_last(AutogradTape& tape, TensorRef x, std::int64_t k) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  Shape shape = from;
  shape.back() = k;
  const Best best = {graph.new_tensor(graph.dtype(x), shape),
                     graph.new_tensor(DType::kInt64, shape)};
  graph.leaf_op("aten::topk", {x, k, -1, true, true}, {best.values, best.indices}, tape.sequence());
  tape.record_unary("TopkBackward0", x, best.values,
                    [&graph, from, indices = best.indices](TensorRef gradient) {
                      graph.begin_op("aten::value_selecting_reduction_backward",
                                     {gradient, -1, indices, from, true});
                      const TensorRef made = new_zeros(graph, gradient, from);
                      graph.leaf_op("aten::scatter_.src", {made, -1, indices, gradient}, {made});
                      return graph.end_with(made);
                    });
  return best;
}

// Place of each number in sorted order.
TensorRef argsort(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef values = like(graph, x), order = graph.new_tensor(DType::kInt64, graph.shape(x));
  graph.begin_op("aten::argsort", {x, -1, false}, tape.sequence());
  graph.leaf_op("aten::sort", {x, -1, false}, {values, order}, tape.sequence());
  return graph.end_with(order);
}

// Ends of each expert's rows, from the experts of all rows.
TensorRef ends_of_experts(AutogradTape& tape, TensorRef sorted, std::int64_t experts) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t sequence = tape.sequence();
  const TensorRef narrow = to_dtype(graph, sorted, DType::kInt32, sequence);
  const TensorRef counts = graph.new_tensor(DType::kInt32, {experts});
  graph.leaf_op("aten::histc", {narrow, experts, 0, experts - 1}, {counts}, sequence);
  return cumsum(graph, counts, 0, scalar_type_code(DType::kInt32), sequence);
}

}  // namespace

ExpertRouting route_to_best(AutogradTape& tape, TensorRef scores, std::int64_t top_k) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t experts = graph.shape(scores).back();
  ExpertRouting routing;
  routing.chances = softmax(tape, scores, -1, true);
  Best best = top_k_of_last(tape, routing.chances, top_k);
  routing.chosen = best.indices;
  if (top_k > 1) best.values = div(tape, best.values, sum(tape, best.values, {-1}, true));
  const TensorRef chosen = view(tape, best.indices, {-1});
  const TensorRef order = argsort(tape, chosen);
  routing.ends =
      ends_of_experts(tape, index_select(graph, chosen, order, tape.sequence()), experts);
  routing.tokens =
      binary(graph, "aten::floor_divide", order, Number(static_cast<int>(top_k)), tape.sequence());
  const TensorRef weights =
      emit(tape, "aten::index_select", {view(tape, best.values, {-1}), 0, order});
  routing.weights = unsqueeze(tape, weights, -1);
  return routing;
}

TensorRef rows_for_experts(AutogradTape& tape, TensorRef x, const ExpertRouting& routing) {
  return emit(tape, "aten::index_select", {x, 0, routing.tokens});
}

TensorRef sum_of_experts(AutogradTape& tape, TensorRef x, TensorRef rows,
                         const ExpertRouting& routing) {
  GraphBuilder& graph = tape.graph();
  const TensorRef weighted = mul(tape, rows, routing.weights);
  const TensorRef out = zeros_like(graph, x);
  index_add_in_place(graph, out, routing.tokens, weighted, 1, tape.sequence());
  tape.record("IndexAddBackward0", {out, weighted}, out,
              [&graph, tokens = routing.tokens](TensorRef gradient) -> std::vector<TensorRef> {
                return {TensorRef{}, index_select(graph, gradient, tokens)};
              });
  return out;
}

TensorRef balance_loss(AutogradTape& tape, const ExpertRouting& routing) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t experts = graph.shape(routing.chances).back();
  const TensorRef chosen = one_hot(tape, routing.chosen, experts);
  const TensorRef flags = to_dtype(graph, chosen, graph.dtype(routing.chances), tape.sequence());
  const TensorRef shares = mean(graph, flags, {0}, false, tape.sequence());  // [k, E]
  const TensorRef chances = unsqueeze(tape, mean(tape, routing.chances, {0}, false), 0);
  const TensorRef both = sum(tape, mul(tape, chances, shares));
  return mul(tape, both, Number(static_cast<int>(experts)));
}

}  // namespace perfmodel
