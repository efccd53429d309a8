#include "loop_rules.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "step/tensor_arguments.hpp"

namespace perfmodel {
// Results: the output, then statistics of each row (of each group).
void LoopRules::norm(std::int32_t node) {
  const Tensor *from = data_of(input_at(graph_, node, 0)),
               *result = data_of(output_at(graph_, node));
  std::vector<const Tensor*> statistics = data_of(graph_, graph_.outputs(node));
  if (!from || !result || statistics.size() < 2) return library(node);
  statistics.erase(statistics.begin());
  const std::string name(bare_op_name(graph_.name(node)));
  const std::int64_t rows = statistics.back()->numel, columns = from->numel / rows;
  loops_.add(LoopOp{.kind = LoopKind::kRows,
                    .name = name,
                    .node = node,
                    .reads = {loops_.read(*from)},
                    .rows = rows,
                    .columns = columns},
             statistics);
  Norm made{.mean = loops_.last_value(*statistics.back()),
            .normalized = loops_.temporary(from->numel, *result),
            .scale = loops_.temporary(rows, *result)};
  LoopOp normalize{.name = name, .node = node, .reads = {loops_.read(*from)}, .rows = from->numel};
  for (const Tensor* statistic : statistics) normalize.reads.push_back(loops_.read(*statistic));
  normalize.writes = {made.normalized};
  loops_.add(std::move(normalize));
  LoopOp affine{.name = name, .node = node, .rows = result->numel};
  affine.reads = {{made.normalized, from->numel, true}};
  const auto inputs = data_of(graph_, graph_.inputs(node));
  for (std::size_t i = 1; i < inputs.size(); ++i) affine.reads.push_back(loops_.read(*inputs[i]));
  loops_.add(std::move(affine), {result});
  // The decomposition of the backward pass divides by the count; the partitioner keeps the
  // quotient.
  const bool was_backward = loops_.in_backward();
  loops_.set_backward(true);
  loops_.add(LoopOp{.name = name + "_backward",
                    .node = node,
                    .reads = {loops_.read(*statistics.back())},
                    .writes = {made.scale},
                    .rows = rows});
  loops_.set_backward(was_backward);
  norms_.push_back(made);
}

void LoopRules::norm_backward(std::int32_t node) {
  const Tensor* gradient = data_of(input_at(graph_, node, 0));
  const auto inputs = data_of(graph_, graph_.inputs(node));
  const auto statistic = [&]() -> const Norm* {
    for (const Tensor* input : inputs) {
      const auto known = std::ranges::find(norms_, loops_.last_value(*input), &Norm::mean);
      if (known != norms_.end()) return &*known;
    }
    return nullptr;
  }();
  if (!gradient || !statistic) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  const std::int64_t all = gradient->numel, rows = loops_.graph().values[statistic->scale].numel;
  const LoopRead normalized{statistic->normalized, all, true};
  const LoopRead scale{statistic->scale, rows, true};
  const Tensor* scaled = data_of(output_at(graph_, node));
  if (scaled) {
    const std::int32_t product = loops_.temporary(all, *gradient);
    const std::int32_t sum = loops_.temporary(rows, *gradient),
                       other = loops_.temporary(rows, *gradient);
    LoopOp times{.name = name, .node = node, .reads = {loops_.read(*gradient)}, .rows = all};
    for (const Tensor* input : inputs) {  // the weight
      if (input != gradient && input->rank == 1 && input->numel * rows <= all) {
        times.reads.push_back(loops_.read(*input));
        break;
      }
    }
    times.writes = {product};
    loops_.add(std::move(times));
    const auto reduction = [&](std::vector<LoopRead> reads, std::int32_t to) {
      loops_.add(LoopOp{.kind = LoopKind::kRows,
                        .name = name,
                        .node = node,
                        .reads = std::move(reads),
                        .writes = {to},
                        .rows = rows,
                        .columns = all / rows});
    };
    reduction({{product, all, true}}, sum);
    reduction({{product, all, true}, normalized}, other);
    loops_.add(LoopOp{.name = name,
                      .node = node,
                      .reads = {{product, all, true},
                                normalized,
                                scale,
                                {sum, rows, true},
                                {other, rows, true}},
                      .rows = all},
               {scaled});
  }
  for (std::size_t i = 1; i < 3; ++i) {
    const Tensor* parameter = data_of(output_at(graph_, node, i));
    if (!parameter || parameter->numel == 0) continue;
    std::vector<LoopRead> reads = {loops_.read(*gradient)};
    if (i == 1) reads.push_back(normalized);
    loops_.add(LoopOp{.kind = LoopKind::kColumns,
                      .name = name,
                      .node = node,
                      .reads = std::move(reads),
                      .rows = parameter->numel,
                      .columns = all / parameter->numel},
               {parameter});
  }
}

// Inputs: values, weight, bias, running mean and variance. Statistics are per channel.
void LoopRules::batch_norm(std::int32_t node) {
  const Tensor *from = data_of(input_at(graph_, node, 0)),
               *result = data_of(output_at(graph_, node)),
               *mean = data_of(output_at(graph_, node, 1)),
               *deviation = data_of(output_at(graph_, node, 2));
  if (!from || !result) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  LoopOp normalize{.name = name, .node = node, .reads = {loops_.read(*from)}, .rows = from->numel};
  const Tensor* running[] = {data_of(input_at(graph_, node, 3)),
                             data_of(input_at(graph_, node, 4))};
  const bool trains = mean && deviation && mean->numel > 0;
  if (trains) {
    loops_.add(LoopOp{.kind = LoopKind::kColumns,
                      .name = name,
                      .node = node,
                      .reads = {loops_.read(*from)},
                      .rows = mean->numel,
                      .columns = from->numel / mean->numel},
               {mean, deviation});
    for (std::size_t i = 0; i < 2; ++i) {
      if (!running[i]) continue;
      loops_.add(
          LoopOp{.name = name,
                 .node = node,
                 .reads = {loops_.read(*running[i]), loops_.read(i == 0 ? *mean : *deviation)},
                 .rows = running[i]->numel},
          {running[i]});
    }
    normalize.reads.push_back(loops_.read(*mean));
    normalize.reads.push_back(loops_.read(*deviation));
  }
  for (std::size_t i = 1; i < (trains ? 3 : 5); ++i) {
    if (const Tensor* read = data_of(input_at(graph_, node, i))) {
      normalize.reads.push_back(loops_.read(*read));
    }
  }
  loops_.add(std::move(normalize), {result});
}

// The sums over each channel, then the gradient of the input.
void LoopRules::batch_norm_backward(std::int32_t node) {
  const bool native = graph_.name(node) == "aten::native_batch_norm_backward";
  const Tensor *from = data_of(input_at(graph_, node, native ? 1 : 0)),
               *gradient = data_of(input_at(graph_, node, native ? 0 : 1)),
               *result = data_of(output_at(graph_, node));
  if (!from || !gradient) return library(node);
  const std::string name(bare_op_name(graph_.name(node)));
  std::vector<LoopRead> all = {loops_.read(*gradient), loops_.read(*from)};
  for (const Tensor* input : data_of(graph_, graph_.inputs(node))) {
    if (input->rank == 1) all.push_back(loops_.read(*input));
  }
  for (std::size_t i = 1; i < 3; ++i) {
    const Tensor* sum = data_of(output_at(graph_, node, i));
    if (!sum || sum->numel == 0) continue;
    loops_.add(LoopOp{.kind = LoopKind::kColumns,
                      .name = name,
                      .node = node,
                      .reads = i == 1 ? all : std::vector<LoopRead>{all.front()},
                      .rows = sum->numel,
                      .columns = gradient->numel / sum->numel},
               {sum});
    all.push_back(loops_.read(*sum));
  }
  if (result) {
    loops_.add(LoopOp{.name = name, .node = node, .reads = all, .rows = result->numel}, {result});
  }
}

}  // namespace perfmodel
