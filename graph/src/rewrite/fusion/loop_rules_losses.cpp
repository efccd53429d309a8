#include "loop_rules.hpp"

#include <string>
#include <utility>

#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

std::int64_t last_size(const ExecutionGraph& graph, const Tensor& tensor) {
  return tensor.rank == 0 ? 1 : graph.shape(tensor).back();
}

}  // namespace

void LoopRules::dropout(std::int32_t node) {
  const Tensor *from = data_of(input_at(graph_, node, 0)),
               *result = data_of(output_at(graph_, node)),
               *mask = data_of(output_at(graph_, node, 1));
  if (!from || !result || !mask) return library(node);
  loops_.add(LoopOp{.name = "native_dropout", .node = node, .rows = mask->numel, .is_random = true},
             {mask});
  loops_.add(LoopOp{.name = "native_dropout",
                    .node = node,
                    .reads = {loops_.read(*from), loops_.read(*mask)},
                    .rows = result->numel},
             {result});
}

void LoopRules::embedding_backward(std::int32_t node) {
  const Tensor *gradient = data_of(input_at(graph_, node, 0)),
               *indices = data_of(input_at(graph_, node, 1)),
               *result = data_of(output_at(graph_, node));
  if (!gradient || !indices || !result) return library(node);
  loops_.add(LoopOp{.name = "embedding_dense_backward", .node = node, .rows = result->numel},
             {result});
  LoopOp op{.kind = LoopKind::kScatter, .name = "embedding_dense_backward", .node = node};
  op.reads = {loops_.read(*result), loops_.read(*gradient), loops_.read(*indices)};
  op.rows = gradient->numel;
  loops_.add(std::move(op), {result});
}

void LoopRules::softmax(std::int32_t node) {
  const Tensor *from = data_of(input_at(graph_, node, 0)),
               *result = data_of(output_at(graph_, node));
  if (!from || !result || from->numel == 0) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  const std::int64_t columns = last_size(graph_, *from), rows = from->numel / columns;
  const std::int32_t most = loops_.temporary(rows, *from), sum = loops_.temporary(rows, *from);
  const LoopRead read = loops_.read(*from), of_most{most, rows, true}, of_sum{sum, rows, true};
  const auto reduction = [&](std::vector<LoopRead> reads, std::int32_t to) {
    loops_.add(LoopOp{.kind = LoopKind::kRows,
                      .name = name,
                      .node = node,
                      .reads = std::move(reads),
                      .writes = {to},
                      .rows = rows,
                      .columns = columns});
  };
  reduction({read}, most);
  reduction({read, of_most}, sum);
  loops_.add(
      LoopOp{.name = name, .node = node, .reads = {read, of_most, of_sum}, .rows = from->numel},
      {result});
}

void LoopRules::softmax_backward(std::int32_t node) {
  const Tensor *gradient = data_of(input_at(graph_, node, 0)),
               *output = data_of(input_at(graph_, node, 1)),
               *result = data_of(output_at(graph_, node));
  if (!gradient || !output || !result || output->numel == 0) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  const std::int64_t columns = last_size(graph_, *output), rows = output->numel / columns;
  const std::int32_t sum = loops_.temporary(rows, *output);
  std::vector<LoopRead> reads = {loops_.read(*gradient)};
  if (name == "_softmax_backward_data") reads.push_back(loops_.read(*output));
  loops_.add(LoopOp{.kind = LoopKind::kRows,
                    .name = name,
                    .node = node,
                    .reads = reads,
                    .writes = {sum},
                    .rows = rows,
                    .columns = columns});
  loops_.add(
      LoopOp{.name = name,
             .node = node,
             .reads = {loops_.read(*gradient), loops_.read(*output), LoopRead{sum, rows, true}},
             .rows = output->numel},
      {result});
}

void LoopRules::nll_loss(std::int32_t node) {
  const Tensor *from = data_of(input_at(graph_, node, 0)),
               *target = data_of(input_at(graph_, node, 1)),
               *loss = data_of(output_at(graph_, node)),
               *weight = data_of(output_at(graph_, node, 1));
  if (!from || !target || !loss) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  const std::int64_t rows = target->numel;
  if (loss->numel != 1 || !weight) {
    return loops_.add(LoopOp{.name = name,
                             .node = node,
                             .reads = {loops_.look_up(*from, rows), loops_.read(*target)},
                             .rows = rows},
                      {loss});
  }
  const std::int32_t sum = loops_.temporary(1, *loss);
  loops_.add(LoopOp{.kind = LoopKind::kRows,
                    .name = name,
                    .node = node,
                    .reads = {loops_.look_up(*from, rows), loops_.read(*target)},
                    .writes = {sum},
                    .columns = rows});
  loops_.add(LoopOp{.kind = LoopKind::kRows,
                    .name = name,
                    .node = node,
                    .reads = {loops_.read(*target)},
                    .columns = rows},
             {weight});
  loops_.add(LoopOp{.name = name, .node = node, .reads = {{sum, 1, true}, loops_.read(*weight)}},
             {loss});
}

void LoopRules::nll_loss_backward(std::int32_t node) {
  const Tensor* result = data_of(output_at(graph_, node));
  const Tensor* like = data_of(input_at(graph_, node, 1));
  if (!result || !like) return library(node);
  LoopOp op{
      .name = std::string(bare_op_name(graph_.name(node))), .node = node, .rows = result->numel};
  for (const Tensor* input : data_of(graph_, graph_.inputs(node))) {
    if (input != like) op.reads.push_back(loops_.read(*input));
  }
  loops_.add(std::move(op), {result});
}

}  // namespace perfmodel
