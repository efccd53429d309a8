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
  const Tensor *from = in(node), *result = out(node), *mask = out(node, 1);
  if (!from || !result || !mask) return library(node);
  LoopOp draw = loop(node, {}, mask->numel);
  draw.is_random = true;
  loops_.add(std::move(draw), {mask});
  loops_.add(loop(node, {loops_.read(*from), loops_.read(*mask)}, result->numel), {result});
}

void LoopRules::embedding_backward(std::int32_t node) {
  const Tensor *gradient = in(node), *indices = in(node, 1), *result = out(node);
  if (!gradient || !indices || !result) return library(node);
  loops_.add(loop(node, {}, result->numel), {result});
  std::vector<LoopRead> reads = {loops_.read(*result), loops_.read(*gradient),
                                 loops_.read(*indices)};
  loops_.add(op_of(LoopKind::kScatter, node, std::move(reads), gradient->numel, 1), {result});
}

void LoopRules::softmax(std::int32_t node) {
  const Tensor *from = in(node), *result = out(node);
  if (!from || !result || from->numel == 0) return library(node);
  const std::int64_t columns = last_size(graph_, *from), rows = from->numel / columns;
  const std::int32_t most = loops_.temporary(rows, *from), sum = loops_.temporary(rows, *from);
  const LoopRead read = loops_.read(*from), of_most{most, rows, true}, of_sum{sum, rows, true};
  add_to(most, op_of(LoopKind::kRows, node, {read}, rows, columns));
  add_to(sum, op_of(LoopKind::kRows, node, {read, of_most}, rows, columns));
  loops_.add(loop(node, {read, of_most, of_sum}, from->numel), {result});
}

void LoopRules::softmax_backward(std::int32_t node) {
  const Tensor *gradient = in(node), *output = in(node, 1), *result = out(node);
  if (!gradient || !output || !result || output->numel == 0) return library(node);
  const std::int64_t columns = last_size(graph_, *output), rows = output->numel / columns;
  const std::int32_t sum = loops_.temporary(rows, *output);
  std::vector<LoopRead> reads = {loops_.read(*gradient)};
  if (bare_op_name(graph_.name(node)) == "_softmax_backward_data") {
    reads.push_back(loops_.read(*output));
  }
  add_to(sum, op_of(LoopKind::kRows, node, std::move(reads), rows, columns));
  reads = {loops_.read(*gradient), loops_.read(*output), LoopRead{sum, rows, true}};
  loops_.add(loop(node, std::move(reads), output->numel), {result});
}

void LoopRules::nll_loss(std::int32_t node) {
  const Tensor *from = in(node), *target = in(node, 1), *loss = out(node), *weight = out(node, 1);
  if (!from || !target || !loss) return library(node);
  const std::int64_t rows = target->numel;
  const auto chosen = [&] {
    return std::vector<LoopRead>{loops_.look_up(*from, rows), loops_.read(*target)};
  };
  if (loss->numel != 1 || !weight) return loops_.add(loop(node, chosen(), rows), {loss});
  const std::int32_t sum = loops_.temporary(1, *loss);
  add_to(sum, op_of(LoopKind::kRows, node, chosen(), 1, rows));
  loops_.add(op_of(LoopKind::kRows, node, {loops_.read(*target)}, 1, rows), {weight});
  loops_.add(loop(node, {{sum, 1, true}, loops_.read(*weight)}, 1), {loss});
}

void LoopRules::nll_loss_backward(std::int32_t node) {
  const Tensor* result = out(node);
  const Tensor* like = in(node, 1);
  if (!result || !like) return library(node);
  LoopOp op = loop(node, {}, result->numel);
  for (const Tensor* input : data_of(graph_, graph_.inputs(node))) {
    if (input != like) op.reads.push_back(loops_.read(*input));
  }
  loops_.add(std::move(op), {result});
}

}  // namespace perfmodel
