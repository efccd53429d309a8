#include "embedding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "embedding_lookup.hpp"
#include "factory.hpp"
#include "graph_reduction.hpp"
#include "index.hpp"
#include "jagged.hpp"
#include "memory.hpp"
#include "sparse.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// The bag of each lookup, of which a CPU keeps no note in the forward pass: ones at the starts of
// bags, added up.
TensorRef offset_to_bag_on_cpu(GraphBuilder& graph, const Bag& bag) {
  const std::int64_t lookups = graph.numel(bag.indices);
  const TensorRef starts = new_zeros(graph, bag.offsets, {lookups + 1});
  graph.begin_op("aten::ones_like", {bag.offsets, kNone, kNone, kNone, kNone, 0});
  const TensorRef ones = empty_like_contiguous(graph, bag.offsets);
  fill(graph, ones, 1.0);
  graph.end_op({ones});
  index_add_in_place(graph, starts, bag.offsets, ones, 1);
  const TensorRef first = select(graph, starts, 0, 0);
  graph.begin_op("aten::sub_.Scalar", {first, 1, 1});
  sub_(graph, first, wrapped_number(graph));
  graph.end_op({first});
  const TensorRef sums = cumsum_on_cpu(graph, starts, 0, scalar_type_code(DType::kInt64));
  return resized(graph, sums, {lookups});
}

TensorRef weights_of(GraphBuilder& graph, const Bag& bag) {
  return bag.per_sample_weights.exists() ? bag.per_sample_weights : graph.undefined();
}

TensorRef sparse_backward(GraphBuilder& graph, const Bag& bag, TensorRef gradient) {
  const std::int64_t rows = bag.rows, dim = graph.shape(gradient).back();
  graph.begin_op("aten::_embedding_bag_sparse_backward",
                 {gradient, bag.indices, bag.offsets, bag.offset_to_bag, bag.bag_size, rows, false,
                  kModeSum, graph.undefined(), -1});
  // Each lookup gets the gradient of its bag.
  const TensorRef per_lookup = index_select(graph, gradient, bag.offset_to_bag);
  graph.begin_op("aten::embedding_sparse_backward", {per_lookup, bag.indices, rows, -1, false});
  const TensorRef index = reshape(graph, bag.indices, {1, -1});
  const TensorRef values = reshape(graph, per_lookup, {-1, dim});
  to_same_dtype(graph, index);
  const TensorRef sparse = sparse_coo_tensor(graph, index, values, {rows, dim});
  graph.end_op({sparse});
  return graph.end_with(sparse);
}

// Sizes of bags are differences of offsets, the last one is the rest.
TensorRef bag_sizes_on_cpu(GraphBuilder& graph, const Bag& bag) {
  const std::int64_t bags = graph.numel(bag.offsets), lookups = graph.numel(bag.indices);
  const TensorRef sizes = empty(graph, DType::kInt64, {bags});
  const TensorRef starts = slice(graph, bag.offsets, 0, 0, bags - 1);
  const TensorRef ends = slice(graph, bag.offsets, 0, 1, bags);
  const TensorRef differences = sub(graph, ends, starts);
  copy(graph, slice(graph, sizes, 0, 0, bags - 1), differences);
  const TensorRef last = select(graph, bag.offsets, 0, bags - 1);
  const TensorRef left = empty_like_in_order(graph, last);
  fill(graph, left, lookups);
  sub_(graph, left, last);
  copy(graph, select(graph, sizes, 0, -1), left);
  return sizes;
}

TensorRef look_up_bags(GraphBuilder& graph, Bag& bag, TensorRef weight) {
  const std::int64_t bags = graph.numel(bag.offsets), dim = graph.shape(weight)[1];
  const DType dtype = graph.dtype(weight);
  TensorRef out;
  if (graph.pytorch().on_gpu()) {
    bag.bag_size = empty(graph, DType::kInt64, {bags});
    bag.offset_to_bag = empty(graph, DType::kInt64, {graph.numel(bag.indices)});
    out = empty(graph, dtype, {bags, dim});
    bag.maximum_indices = empty(graph, DType::kInt64, {0});
  } else {
    out = empty(graph, dtype, {bags, dim});
    bag.offset_to_bag = empty(graph, DType::kInt64, {0});
    bag.bag_size = bag_sizes_on_cpu(graph, bag);
    bag.maximum_indices = empty(graph, DType::kInt64, {bags});
    copy(graph, bag.maximum_indices, bag.bag_size);
  }
  return out;
}

// Arguments of a lookup function that only FBGEMM's own bookkeeping needs.
TensorRef table_metadata(GraphBuilder& graph, DType dtype, std::size_t size) {
  return graph.new_tensor(dtype, {static_cast<std::int64_t>(size)});
}

int bits_for(std::int64_t total_rows) {
  int bits = 0;
  for (; total_rows > 0; total_rows >>= 1) ++bits;
  return bits;
}

std::string_view optimizer_name(TableBatch::Optimizer optimizer) {
  switch (optimizer) {
    case TableBatch::Optimizer::kSgd: return "sgd";
    case TableBatch::Optimizer::kAdagrad: return "adagrad";
    case TableBatch::Optimizer::kAdam: return "adam";
    case TableBatch::Optimizer::kRowwiseAdagrad: break;
  }
  return "rowwise_adagrad";
}

// Rows that are looked up more often than this are added up by several thread blocks.
constexpr std::int64_t kLongRun = 1024;

// The allocations around FBGEMM's sort by row, its run lengths, and the fused update. The kernels
// themselves are launched by the enclosing node. Only tables that may be cached have
// `cache_locations`.
void table_batched_backward(GraphBuilder& graph, TensorRef indices, TensorRef cache_locations,
                            std::int64_t max_dim) {
  constexpr DType kInt = DType::kInt32;
  const std::int64_t lookups = graph.numel(indices);
  const TensorRef infos = empty_like(graph, indices, kInt);
  empty_like(graph, infos);    // infos, sorted
  empty_like(graph, indices);  // linear indices
  empty_like(graph, indices);  // linear indices, sorted
  sort_scratch(graph, lookups);
  empty_like(graph, indices);  // run starts
  const TensorRef run_lengths = zeros_like(graph, indices, kInt);
  zeros(graph, kInt, {1});  // number of runs
  run_length_scratch(graph, lookups);
  const TensorRef cumulative = empty(graph, kInt, {lookups + 1});
  zero(graph, select(graph, cumulative, 0, 0));
  prefix_sum_scratch(graph, lookups);
  if (cache_locations.exists()) empty_like(graph, cache_locations);
  for (int i = 0; i < 2; ++i) {  // long runs: ids and counts
    empty_like(graph, run_lengths);
    zeros(graph, kInt, {1});
  }
  empty(graph, kInt, {lookups / kLongRun});
  zeros(graph, DType::kFloat32, {lookups / kLongRun, max_dim});
}

// FBGEMM for PyTorch 2.0 tells the dispatcher nothing of autograd, so its ops have no number.
std::int64_t fbgemm_sequence(const AutogradTape& tape) {
  return tape.graph().pytorch().before(2, 1) ? -1 : tape.sequence();
}

std::int64_t elements_of(const TableBatch& tables) {
  return std::inner_product(tables.rows.begin(), tables.rows.end(), tables.dims.begin(),
                            std::int64_t{0});
}

// Arguments of lookup functions for their optimizer.
void add_optimizer_arguments(GraphBuilder& graph, const TableBatch& tables,
                             std::vector<Value>& arguments) {
  using Optimizer = TableBatch::Optimizer;
  const std::size_t count = tables.rows.size();
  const auto add = [&](std::initializer_list<Value> more) {
    arguments.insert(arguments.end(), more);
  };
  const auto add_state = [&](std::int64_t numbers) {  // on the GPU, in host memory, place of each
    add({graph.new_tensor(DType::kFloat32, {numbers}), graph.new_tensor(DType::kFloat32, {0}),
         table_metadata(graph, DType::kInt32, count), table_metadata(graph, DType::kInt64, count)});
  };
  constexpr double kEpsilon = 1e-8;
  switch (tables.optimizer) {
    case Optimizer::kSgd: return add({tables.learning_rate});
    case Optimizer::kAdagrad:
      add_state(elements_of(tables));
      return add({kEpsilon, tables.learning_rate});
    case Optimizer::kRowwiseAdagrad:
      add_state(sum_of(tables.rows));
      return add({kEpsilon, tables.learning_rate, 0.0, 0});  // weight decay and its mode
    case Optimizer::kAdam:
      add_state(elements_of(tables));
      add_state(elements_of(tables));
      return add({tables.learning_rate, kEpsilon, 0.9, 0.999, 0.0, 1});  // ..., decay, iteration
  }
}

}  // namespace

TensorRef dense_bag_backward(GraphBuilder& graph, const Bag& bag, TensorRef gradient) {
  const Shape shape = {bag.rows, graph.shape(gradient).back()};
  graph.begin_op(
      "aten::_embedding_bag_dense_backward",
      {gradient, bag.indices, bag.offset_to_bag, bag.bag_size, bag.maximum_indices, bag.rows,
       bag.scale_by_frequency, bag.mode, weights_of(graph, bag), bag.padding_row});
  const TensorRef rows = contiguous(graph, gradient);
  TensorRef made = zeros(graph, graph.dtype(gradient), shape);
  if (graph.pytorch().on_gpu()) {
    made = sorted_lookup_gradient(graph, bag.indices, rows, shape);
  } else {
    index_select(graph, bag.offset_to_bag, sorted_order(graph, bag.indices, -1));
  }
  return graph.end_with(made);
}

TensorRef embedding_bag_backward(GraphBuilder& graph, Bag bag, TensorRef gradient) {
  graph.begin_op("aten::_embedding_bag_backward",
                 {gradient, bag.indices, bag.offsets, bag.offset_to_bag, bag.bag_size,
                  bag.maximum_indices, bag.rows, bag.scale_by_frequency, bag.mode, bag.sparse,
                  weights_of(graph, bag), bag.padding_row});
  if (!graph.pytorch().on_gpu()) bag.offset_to_bag = offset_to_bag_on_cpu(graph, bag);
  return graph.end_with(bag.sparse ? sparse_backward(graph, bag, gradient)
                                   : dense_bag_backward(graph, bag, gradient));
}

TensorRef embedding_bag(AutogradTape& tape, TensorRef weight, TensorRef indices, TensorRef offsets,
                        bool sparse) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t sequence = tape.sequence();
  Bag bag{.rows = graph.shape(weight)[0], .indices = indices, .offsets = offsets, .sparse = sparse};
  graph.begin_op("aten::embedding_bag.padding_idx",
                 {weight, indices, offsets, false, kModeSum, sparse, kNone, false, kNone},
                 sequence);
  graph.begin_op("aten::_embedding_bag",
                 {weight, indices, offsets, false, kModeSum, sparse, graph.undefined(), false, -1},
                 sequence);
  const TensorRef out = look_up_bags(graph, bag, weight);
  const std::vector<Value> outputs = {out, bag.offset_to_bag, bag.bag_size, bag.maximum_indices};
  graph.end_op(outputs);
  graph.end_op(outputs);
  return tape.record_unary("EmbeddingBagBackward0", weight, out, [&graph, bag](TensorRef gradient) {
    return embedding_bag_backward(graph, bag, gradient);
  });
}

TensorRef table_batched_lookup(AutogradTape& tape, const TableBatch& tables, std::int64_t batch,
                               TensorRef indices, TensorRef offsets) {
  GraphBuilder& graph = tape.graph();
  constexpr DType kFloat = DType::kFloat32, kInt = DType::kInt32, kLong = DType::kInt64;
  const std::size_t count = tables.rows.size();
  const std::int64_t total_rows = sum_of(tables.rows), elements = elements_of(tables);
  const std::int64_t total_dim = sum_of(tables.dims);
  const std::int64_t max_dim = *std::max_element(tables.dims.begin(), tables.dims.end());

  to_same_dtype(graph, indices, tape.sequence());
  to_same_dtype(graph, offsets, tape.sequence());
  const TensorRef rows_per_table = table_metadata(graph, kLong, count);
  const TensorRef warning = graph.new_tensor(kLong, {1});
  const std::int64_t sequence = fbgemm_sequence(tape);
  graph.begin_op("fbgemm::bounds_check_indices",
                 {rows_per_table, indices, offsets, 1, warning, kNone}, sequence);
  zero(graph, warning, tape.sequence());
  graph.end_op();

  const TensorRef placeholder =
      tables.placeholder.exists() ? tables.placeholder : graph.new_tensor(kFloat, {0});
  const TensorRef cache_locations = graph.new_tensor(kInt, {0});
  std::vector<Value> arguments = {placeholder,
                                  graph.new_tensor(kFloat, {elements}),
                                  graph.new_tensor(kFloat, {0}),        // host weights
                                  graph.new_tensor(kFloat, {0, 0}),     // cache
                                  table_metadata(graph, kInt, count),   // placements
                                  table_metadata(graph, kLong, count),  // weight offsets
                                  table_metadata(graph, kInt, count + 1),
                                  total_dim,
                                  max_dim,
                                  table_metadata(graph, kLong, count + 1),
                                  bits_for(total_rows),
                                  indices,
                                  offsets,
                                  kModeSum,
                                  kNone,
                                  kNone,
                                  cache_locations,
                                  false,
                                  1.0,
                                  true};
  add_optimizer_arguments(graph, tables, arguments);
  arguments.push_back(0);  // output in float

  const std::string_view name = optimizer_name(tables.optimizer);
  graph.begin_op(fmt::format("fbgemm::split_embedding_codegen_lookup_{}_function", name),
                 std::move(arguments), sequence);
  const TensorRef out = empty(graph, kFloat, {batch, total_dim});
  graph.end_op({out});
  std::vector<TensorRef> inputs;
  if (tables.placeholder.exists()) inputs.push_back(tables.placeholder);
  tape.record(fmt::format("torch::autograd::CppNode<SplitLookupFunction_{}_Op>", name), inputs, out,
              [&graph, indices, cache_locations, max_dim, inputs](TensorRef) {
                table_batched_backward(graph, indices, cache_locations, max_dim);
                return std::vector<TensorRef>(inputs.size());  // updated already: no gradient
              });
  return out;
}

TensorRef dense_table_batched_lookup(AutogradTape& tape, const TableBatch& tables,
                                     TensorRef weights, std::int64_t batch, TensorRef indices,
                                     TensorRef offsets) {
  GraphBuilder& graph = tape.graph();
  const std::size_t count = tables.rows.size();
  const std::int64_t total_dim = sum_of(tables.dims);
  const std::int64_t max_dim = *std::max_element(tables.dims.begin(), tables.dims.end());
  to_same_dtype(graph, indices, tape.sequence());
  to_same_dtype(graph, offsets, tape.sequence());
  graph.begin_op("fbgemm::dense_embedding_codegen_lookup_function",
                 {weights, table_metadata(graph, DType::kInt64, count),
                  table_metadata(graph, DType::kInt32, count + 1), total_dim, max_dim,
                  table_metadata(graph, DType::kInt64, count + 1), bits_for(sum_of(tables.rows)),
                  indices, offsets, kModeSum, kNone, kNone, 0},
                 fbgemm_sequence(tape));
  const TensorRef out = empty(graph, DType::kFloat32, {batch, total_dim});
  graph.end_op({out});
  return tape.record_unary("torch::autograd::CppNode<SplitLookupFunction_Dense_Op>", weights, out,
                           [&graph, weights, indices, max_dim](TensorRef) {
                             const TensorRef gradient = zeros_like(graph, weights);
                             table_batched_backward(graph, indices, {}, max_dim);
                             return gradient;
                           });
}

}  // namespace perfmodel
