#include "loop_addends.hpp"

#include <algorithm>
#include <utility>

namespace perfmodel {
namespace {

class AddendPlacer {
 public:
  AddendPlacer(LoopGraph& graph, const std::vector<std::int32_t>& ops, std::vector<bool>& is_output)
      : graph_(graph),
        is_output_(is_output),
        is_here_(graph.ops.size()),
        is_gone_(graph.ops.size()) {
    for (const std::int32_t op : ops) is_here_[op] = true;
  }

  std::vector<std::int32_t> place(const std::vector<std::int32_t>& ops) {
    std::vector<std::int32_t> placed;
    for (const std::int32_t op : ops) {
      if (has_loose_bias(op)) {
        placed.push_back(op);
        placed.push_back(drop_bias(op));
      } else if (const std::int32_t product = product_to_add_to(op); product >= 0) {
        take_addend(product, op);
        is_gone_[product] = true;
        placed.push_back(op);
      } else {
        placed.push_back(op);
      }
    }
    std::erase_if(placed, [&](std::int32_t op) {
      return op < static_cast<std::int32_t>(is_gone_.size()) && is_gone_[op];
    });
    return placed;
  }

 private:
  std::vector<std::int32_t> readers(std::int32_t value) const {
    std::vector<std::int32_t> found;
    for (const std::int32_t reader : graph_.values[value].readers) {
      if (reader < static_cast<std::int32_t>(is_here_.size()) && is_here_[reader]) {
        found.push_back(reader);
      }
    }
    return found;
  }
  bool is_read_by_loops_alone(std::int32_t value) const {
    const std::vector<std::int32_t> all = readers(value);
    return !is_output_[value] && !all.empty() && std::ranges::all_of(all, [&](std::int32_t reader) {
      return graph_.ops[reader].kind == LoopKind::kPointwise;
    });
  }

  bool has_loose_bias(std::int32_t index) const {
    const LoopOp& op = graph_.ops[index];
    if (op.is_loop() || op.is_padded || op.name != "addmm" || op.reads.size() != 3) return false;
    if (op.writes.size() != 1) return false;
    const LoopValue& sum = graph_.values[op.writes[0]];
    return size_in_bytes(sum.dtype) > 2 && op.reads[0].numel < sum.numel &&
           is_read_by_loops_alone(op.writes[0]);
  }

  // The library call makes another value; a loop adds the bias to it.
  std::int32_t drop_bias(std::int32_t index) {
    const std::int32_t sum = graph_.ops[index].writes[0];
    LoopValue product = graph_.values[sum];
    product.readers.clear();
    product.made_by = index;
    graph_.values[sum].tensor = LoopValue::kNoTensor;
    const std::int64_t numel = product.numel;
    const std::int32_t made = graph_.add(std::move(product));
    is_output_.push_back(false);
    LoopOp& call = graph_.ops[index];
    const LoopRead bias = call.reads[0];
    call.reads.erase(call.reads.begin());
    call.writes = {made};
    call.addend = LoopOp::Addend::kDropped;
    return graph_.add(LoopOp{.name = "addmm",
                             .node = call.node,
                             .reads = {{made, numel, true}, bias},
                             .writes = {sum},
                             .rows = numel,
                             .in_backward = call.in_backward});
  }

  // A product that this sum alone reads; -1: none, or loops go on with the sum.
  std::int32_t product_to_add_to(std::int32_t index) const {
    const LoopOp& op = graph_.ops[index];
    if (op.kind != LoopKind::kPointwise || op.name != "add" || op.reads.size() != 2) return -1;
    if (op.reads[0].value == op.reads[1].value || is_read_by_loops_alone(op.writes[0])) return -1;
    for (const LoopRead& read : op.reads) {
      const LoopValue& product = graph_.values[read.value];
      const LoopValue& sum = graph_.values[op.writes[0]];
      const std::int32_t made_by = product.made_by;
      if (made_by < 0 || !is_here_[made_by] || graph_.ops[made_by].name != "mm") continue;
      const bool is_plain = graph_.ops[made_by].addend == LoopOp::Addend::kAsItIs &&
                            !graph_.ops[made_by].is_padded && read.in_order &&
                            product.numel == sum.numel && product.dtype == sum.dtype;
      const LoopRead& other = op.reads[&read == &op.reads[0] ? 1 : 0];
      const bool fits = graph_.values[other.value].dtype == sum.dtype && other.in_order;
      if (is_plain && fits && !is_output_[read.value] && readers(read.value).size() == 1) {
        return made_by;
      }
    }
    return -1;
  }

  void take_addend(std::int32_t product, std::int32_t sum) {
    const LoopOp& call = graph_.ops[product];
    LoopOp& op = graph_.ops[sum];
    const LoopRead addend = op.reads[0].value == call.writes[0] ? op.reads[1] : op.reads[0];
    op.kind = LoopKind::kLibrary;
    op.name = "addmm";
    op.node = call.node;
    op.addend = LoopOp::Addend::kTaken;
    op.reads = {addend};
    op.reads.insert(op.reads.end(), call.reads.begin(), call.reads.end());
    for (const LoopRead& read : call.reads) graph_.values[read.value].readers.push_back(sum);
  }

  LoopGraph& graph_;
  std::vector<bool>& is_output_;
  std::vector<bool> is_here_, is_gone_;
};

}  // namespace

void place_addends(LoopGraph& graph, std::vector<std::int32_t>& ops, std::vector<bool>& is_output) {
  ops = AddendPlacer(graph, ops, is_output).place(ops);
}

}  // namespace perfmodel
