#include "loop_rules.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "step/tensor_arguments.hpp"

namespace perfmodel {
// Results: the output, then statistics of each row (of each group).
void LoopRules::norm(std::int32_t node) {
  const Tensor *from = in(node), *result = out(node);
  std::vector<const Tensor*> statistics = data_of(graph_, graph_.outputs(node));
  if (!from || !result || statistics.size() < 2) return library(node);
  statistics.erase(statistics.begin());
  const std::int64_t rows = statistics.back()->numel, columns = from->numel / rows;
  loops_.add(op_of(LoopKind::kRows, node, {loops_.read(*from)}, rows, columns), statistics);
  Norm made{.mean = loops_.last_value(*statistics.back()),
            .normalized = loops_.temporary(from->numel, *result),
            .scale = loops_.temporary(rows, *result)};
  LoopOp normalize = loop(node, {loops_.read(*from)}, from->numel);
  for (const Tensor* statistic : statistics) normalize.reads.push_back(loops_.read(*statistic));
  add_to(made.normalized, std::move(normalize));
  LoopOp affine = loop(node, {{made.normalized, from->numel, true}}, result->numel);
  const auto inputs = data_of(graph_, graph_.inputs(node));
  for (std::size_t i = 1; i < inputs.size(); ++i) affine.reads.push_back(loops_.read(*inputs[i]));
  loops_.add(std::move(affine), {result});
  // The decomposition of the backward pass divides by the count; the partitioner keeps the
  // quotient.
  const bool was_backward = loops_.in_backward();
  loops_.set_backward(true);
  LoopOp divide = loop(node, {loops_.read(*statistics.back())}, rows);
  divide.name += "_backward";
  add_to(made.scale, std::move(divide));
  loops_.set_backward(was_backward);
  norms_.push_back(made);
}

void LoopRules::norm_backward(std::int32_t node) {
  const Tensor* gradient = in(node);
  const auto inputs = data_of(graph_, graph_.inputs(node));
  const auto statistic = [&]() -> const Norm* {
    for (const Tensor* input : inputs) {
      const auto known = std::ranges::find(norms_, loops_.last_value(*input), &Norm::mean);
      if (known != norms_.end()) return &*known;
    }
    return nullptr;
  }();
  if (!gradient || !statistic) return library(node);
  const std::int64_t all = gradient->numel, rows = loops_.graph().values[statistic->scale].numel;
  const LoopRead normalized{statistic->normalized, all, true};
  const LoopRead scale{statistic->scale, rows, true};
  const Tensor* scaled = out(node);
  if (scaled) {
    const std::int32_t product = loops_.temporary(all, *gradient);
    const std::int32_t sum = loops_.temporary(rows, *gradient),
                       other = loops_.temporary(rows, *gradient);
    LoopOp times = loop(node, {loops_.read(*gradient)}, all);
    for (const Tensor* input : inputs) {  // the weight
      if (input != gradient && input->rank == 1 && input->numel * rows <= all) {
        times.reads.push_back(loops_.read(*input));
        break;
      }
    }
    add_to(product, std::move(times));
    const LoopRead of_product{product, all, true};
    add_to(sum, op_of(LoopKind::kRows, node, {of_product}, rows, all / rows));
    add_to(other, op_of(LoopKind::kRows, node, {of_product, normalized}, rows, all / rows));
    loops_.add(
        loop(node, {of_product, normalized, scale, {sum, rows, true}, {other, rows, true}}, all),
        {scaled});
  }
  for (std::size_t i = 1; i < 3; ++i) {
    const Tensor* parameter = out(node, i);
    if (!parameter || parameter->numel == 0) continue;
    std::vector<LoopRead> reads = {loops_.read(*gradient)};
    if (i == 1) reads.push_back(normalized);
    loops_.add(
        op_of(LoopKind::kColumns, node, std::move(reads), parameter->numel, all / parameter->numel),
        {parameter});
  }
}

// Inputs: values, weight, bias, running mean and variance. Statistics are per channel.
void LoopRules::batch_norm(std::int32_t node) {
  const Tensor *from = in(node), *result = out(node), *mean = out(node, 1),
               *deviation = out(node, 2);
  if (!from || !result) return library(node);
  LoopOp normalize = loop(node, {loops_.read(*from)}, from->numel);
  const Tensor* running[] = {in(node, 3), in(node, 4)};
  const bool trains = mean && deviation && mean->numel > 0;
  if (trains) {
    loops_.add(op_of(LoopKind::kColumns, node, {loops_.read(*from)}, mean->numel,
                     from->numel / mean->numel),
               {mean, deviation});
    for (std::size_t i = 0; i < 2; ++i) {
      if (!running[i]) continue;
      const Tensor& now = i == 0 ? *mean : *deviation;
      loops_.add(loop(node, {loops_.read(*running[i]), loops_.read(now)}, running[i]->numel),
                 {running[i]});
    }
    normalize.reads.push_back(loops_.read(*mean));
    normalize.reads.push_back(loops_.read(*deviation));
  }
  for (std::size_t i = 1; i < (trains ? 3 : 5); ++i) {
    if (const Tensor* read = in(node, i)) {
      normalize.reads.push_back(loops_.read(*read));
    }
  }
  loops_.add(std::move(normalize), {result});
}

// The sums over each channel, then the gradient of the input.
void LoopRules::batch_norm_backward(std::int32_t node) {
  const bool native = graph_.name(node) == "aten::native_batch_norm_backward";
  const Tensor *from = in(node, native ? 1 : 0), *gradient = in(node, native ? 0 : 1),
               *result = out(node);
  if (!from || !gradient) return library(node);
  std::vector<LoopRead> all = {loops_.read(*gradient), loops_.read(*from)};
  for (const Tensor* input : data_of(graph_, graph_.inputs(node))) {
    if (input->rank == 1) all.push_back(loops_.read(*input));
  }
  for (std::size_t i = 1; i < 3; ++i) {
    const Tensor* sum = out(node, i);
    if (!sum || sum->numel == 0) continue;
    loops_.add(op_of(LoopKind::kColumns, node, i == 1 ? all : std::vector{all.front()}, sum->numel,
                     gradient->numel / sum->numel),
               {sum});
    all.push_back(loops_.read(*sum));
  }
  if (result) {
    loops_.add(loop(node, std::move(all), result->numel), {result});
  }
}

}  // namespace perfmodel
