#include "loop_padding.hpp"

#include <algorithm>
#include <utility>

#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

/// C[m, n] = A[m, k] B[k, n]; where A and B are in `LoopOp::reads`.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::size_t a = 0, b = 1;
};

constexpr std::int64_t kAlignment = 8;  // elements of 16 bits; pad_mm.py, get_alignment_size()

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // no memory holds such operands

std::int64_t whole_multiple(std::int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// pad_mm.py, is_mm_compute_bound(), on an H100: others would run at the speed of memory anyway.
bool is_bound_by_sums(const Product& p) {
  constexpr double kFlopPerByte = 989e3 / 3352, kShare = 0.5;
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n),
             k = static_cast<double>(p.k);
  return m * n * k / (m * k + k * n + m * n) > kShare * kFlopPerByte;
}

class Padder {
 public:
  Padder(const ExecutionGraph& source, LoopGraph& graph, std::vector<bool>& is_output)
      : source_(source), graph_(graph), is_output_(is_output) {}

  std::vector<std::int32_t> pad(const std::vector<std::int32_t>& ops) {
    std::vector<std::int32_t> placed;
    for (const std::int32_t op : ops) {
      if (const Product p = product(op); p.m > 0 && is_worth_it(op, p)) {
        pad_operand(op, p.a, p.m, p.k, placed);
        pad_operand(op, p.b, p.k, p.n, placed);
        if (p.a > 0) pad_operand(op, 0, 1, p.n, placed);
        graph_.ops[op].is_padded = true;
      }
      placed.push_back(op);
    }
    return placed;
  }

 private:
  // m = 0: the op is none, or adds a matrix.
  Product product(std::int32_t index) const {
    const LoopOp& op = graph_.ops[index];
    const bool adds = op.name == "addmm";
    if (op.is_loop() || (op.name != "mm" && !adds) || op.writes.size() != 1) return {};
    if (op.reads.size() != (adds ? 3U : 2U)) return {};
    const Tensor* a = input_at(source_, op.node, adds ? 1 : 0);
    const Tensor* b = input_at(source_, op.node, adds ? 2 : 1);
    if (!a || !b || a->rank != 2 || b->rank != 2) return {};
    const auto left = source_.shape(*a), right = source_.shape(*b);
    if (left[1] != right[0] || (adds && op.reads[0].numel != right[1])) return {};
    if (std::max({left[0], left[1], right[1]}) > kLargest) return {};
    return {.m = left[0], .n = right[1], .k = left[1], .a = adds ? 1U : 0U, .b = adds ? 2U : 1U};
  }

  bool is_worth_it(std::int32_t index, const Product& p) const {
    const LoopOp& op = graph_.ops[index];
    const std::int64_t row_of_a = op.reads[p.a].in_order ? p.k : p.m;
    const std::int64_t row_of_b = op.reads[p.b].in_order ? p.n : p.k;
    const bool is_aligned =
        row_of_a % kAlignment == 0 && row_of_b % kAlignment == 0 && p.n % kAlignment == 0;
    return !is_aligned && size_in_bytes(graph_.values[op.writes[0]].dtype) == 2 &&
           is_bound_by_sums(p);
  }

  // A loop copies the operand into a new one of whole multiples.
  void pad_operand(std::int32_t product, std::size_t operand, std::int64_t rows,
                   std::int64_t columns, std::vector<std::int32_t>& placed) {
    const std::int64_t new_rows = rows == 1 ? 1 : whole_multiple(rows),
                       new_columns = whole_multiple(columns);
    if (new_rows == rows && new_columns == columns) return;
    const LoopOp& op = graph_.ops[product];
    const LoopRead from = {op.reads[operand].value, rows * columns, true};
    const bool in_backward = op.in_backward;
    LoopValue copy{.numel = new_rows * new_columns,
                   .dtype = graph_.values[from.value].dtype,
                   .device = graph_.values[from.value].device,
                   .columns = new_columns};
    const std::int32_t made = graph_.add(std::move(copy));
    is_output_.push_back(false);
    graph_.ops[product].reads[operand] = {made, new_rows * new_columns, true};
    if (!std::ranges::count(graph_.ops[product].reads, from.value, &LoopRead::value)) {
      std::erase(graph_.values[from.value].readers, product);
    }
    placed.push_back(graph_.add(LoopOp{.name = op.name,
                                       .node = op.node,
                                       .reads = {from},
                                       .writes = {made},
                                       .rows = new_rows * new_columns,
                                       .in_backward = in_backward}));
    graph_.values[made].readers.push_back(product);
  }

  const ExecutionGraph& source_;
  LoopGraph& graph_;
  std::vector<bool>& is_output_;
};

}  // namespace

void pad_products(const ExecutionGraph& source, LoopGraph& graph, std::vector<std::int32_t>& ops,
                  std::vector<bool>& is_output) {
  ops = Padder(source, graph, is_output).pad(ops);
}

}  // namespace perfmodel
