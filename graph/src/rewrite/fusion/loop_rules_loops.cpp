#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "loop_rules.hpp"
#include "ops/catalogue.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

// torch/_inductor/config.py: unroll_reductions_threshold, max_pointwise_cat_inputs
constexpr std::int64_t kMostUnrolled = 8;
constexpr std::size_t kMostJoined = 8;

}  // namespace

// A convolution's bias is added in a loop.
void LoopRules::convolution(std::int32_t node) {
  const Tensor *bias = in(node, 2), *result = out(node);
  const auto adds = [&](std::int32_t child) { return graph_.name(child) == "aten::add_"; };
  const auto children = graph_.children(node);
  const bool has_sum = std::ranges::any_of(children, [&](std::int32_t child) {
    return std::ranges::any_of(graph_.children(child), adds);
  });
  library(node);
  if (!bias || !result || !has_sum) return;
  loops_.graph().ops.back().addend = LoopOp::Addend::kDropped;
  loops_.add(loop(node, {loops_.read(*result), loops_.read(*bias)}, result->numel), {result});
}

// Each of many tensors has a kernel that writes its part of the result.
void LoopRules::join(std::int32_t node, const Tensor& result) {
  for (const Tensor* part : data_of(graph_, graph_.inputs(node))) {
    LoopOp op{.kind = LoopKind::kScatter,
              .name = "cat",
              .node = node,
              .reads = {loops_.read(*part)},
              .rows = part->numel,
              .runs_once = true};
    const std::int32_t before = loops_.last_value(result);
    const bool is_begun = before >= 0 && loops_.graph().values[before].made_by >= 0;
    if (is_begun) op.reads.push_back({before, part->numel, false});
    loops_.add(std::move(op), {&result});
  }
}

// A result that is smaller than an operand is a sum: of losses.
void LoopRules::pointwise(std::int32_t node) {
  const auto results = data_of(graph_, graph_.outputs(node));
  const std::string name(bare_op_name(graph_.name(node)));
  const Op* row = find_op(graph_.name(node));
  const bool joins = row->kind == OpKind::kConcat && results.size() == 1;
  if (joins && data_of(graph_, graph_.inputs(node)).size() > kMostJoined) {
    return join(node, *results[0]);
  }
  const bool draws = row->kind == OpKind::kRandom || name.starts_with("bernoulli");
  const bool fills = row->kind == OpKind::kFill && (name == "fill" || name == "zero");
  LoopOp op{.name = fills ? "full" : name, .node = node, .is_random = draws};
  op.is_large = op.runs_once = row->kind == OpKind::kPooling;
  std::int64_t largest = 0;
  for (const std::int32_t child :
       graph_.children(node)) {  // an op in place may keep a copy of its input
    if (graph_.name(child) == "aten::clone") read(child);
  }
  const bool reads = row->kind != OpKind::kFill && row->kind != OpKind::kRandom;
  for (const Tensor* read : data_of(graph_, graph_.inputs(node))) {
    if (!reads) break;
    largest = std::max(largest, read->numel);
    op.reads.push_back(loops_.read(*read));
  }
  if (results.empty()) return;
  for (const Tensor* result : results) op.rows = std::max(op.rows, result->numel);
  if (row->kind != OpKind::kPointwise || largest <= op.rows)
    return loops_.add(std::move(op), results);
  op.rows = largest;
  const std::int32_t each = loops_.temporary(largest, *results[0]);
  add_to(each, std::move(op));
  const std::int64_t rows = results[0]->numel;
  loops_.add(op_of(LoopKind::kRows, node, {{each, largest, true}}, rows,
                   largest / std::max<std::int64_t>(1, rows)),
             results);
}

void LoopRules::gather(std::int32_t node) {
  const Tensor* result = out(node);
  if (!result) return library(node);
  LoopOp op = loop(node, {}, result->numel);
  op.runs_once = true;
  for (const Tensor* read : data_of(graph_, graph_.inputs(node))) {
    op.reads.push_back(op.reads.empty() ? loops_.look_up(*read, result->numel)
                                        : loops_.read(*read));
  }
  loops_.add(std::move(op), {result});
}

// Adds the last tensor to places of the first.
void LoopRules::scatter(std::int32_t node) {
  const auto inputs = data_of(graph_, graph_.inputs(node));
  if (inputs.size() < 2) return library(node);
  LoopOp op = op_of(LoopKind::kScatter, node, {}, inputs.back()->numel, 1);
  for (const Tensor* read : inputs) op.reads.push_back(loops_.read(*read));
  loops_.add(std::move(op), {inputs.front()});
}

// The reduced dimensions are the last ones, or others too.
void LoopRules::reduce(std::int32_t node) {
  const Tensor *from = in(node), *result = out(node);
  if (!from || !result || result->numel == 0) return library(node);
  if (from->numel == result->numel) return pointwise(node);
  std::vector<std::int64_t> dims;
  if (const auto inputs = graph_.inputs(node); inputs.size() > 1) {
    if (inputs[1].kind == Argument::Kind::kInt && inputs.size() > 2) dims = {inputs[1].integer};
    if (inputs[1].kind == Argument::Kind::kList) {
      for (const Argument& dim : graph_.elements(inputs[1])) dims.push_back(dim.integer);
    }
  }
  for (std::int64_t& dim : dims) dim += dim < 0 ? from->rank : 0;
  bool trailing = true;
  for (std::int64_t dim = from->rank;
       !dims.empty() && dim-- > from->rank - static_cast<std::int64_t>(dims.size());) {
    trailing &= contains(dims, dim);
  }
  const std::int64_t columns = from->numel / result->numel;
  const bool is_unrolled = columns <= kMostUnrolled;
  LoopOp op = op_of(trailing ? LoopKind::kRows : LoopKind::kColumns, node, {loops_.read(*from)},
                    result->numel, columns);
  if (is_unrolled) op.kind = LoopKind::kPointwise, op.columns = 1;
  op.runs_once = true;
  loops_.add(std::move(op), data_of(graph_, graph_.outputs(node)));
}

}  // namespace perfmodel
