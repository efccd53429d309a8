#include "loop_inlining.hpp"

#include <algorithm>
#include <utility>

#include "base/contains.hpp"

namespace perfmodel {
namespace {

// torch/_inductor/config.py: realize_reads_threshold, realize_acc_reads_threshold,
// realize_opcount_threshold
constexpr std::size_t kMostSharedReads = 4, kMostReads = 8, kMostSharedOps = 30;

class PointwiseInliner {
 public:
  PointwiseInliner(const LoopGraph& graph, std::span<const std::int32_t> ops,
                   const std::vector<bool>& is_output)
      : graph_(graph),
        is_output_(is_output),
        inlined_(graph.ops.size()),
        is_here_(graph.ops.size()) {
    for (const std::int32_t op : ops) is_here_[op] = true;
    for (const std::int32_t op : ops) inline_op(op);
  }

  std::vector<InlinedOp> finish() { return std::move(inlined_); }

 private:
  void inline_op(std::int32_t index) {
    const LoopOp& op = graph_.ops[index];
    InlinedOp& made = inlined_[index];
    made.ops = {index};
    for (const LoopRead& read : op.reads) {
      const LoopValue& value = graph_.values[read.value];
      if (value.is_blank) continue;
      const bool is_made_here = value.made_by >= 0 && is_here_[value.made_by];
      if (!is_made_here || inlined_[value.made_by].in_memory) {
        add_once(made.reads, read);
        continue;
      }
      const InlinedOp& inner = inlined_[value.made_by];
      add_each_once(made.ops, inner.ops);
      for (LoopRead leaf : inner.reads) {
        leaf.numel = std::min(leaf.numel, std::max<std::int64_t>(read.numel, 1));
        leaf.in_order &= read.in_order;
        add_once(made.reads, leaf);
      }
    }
    made.in_memory = must_be_in_memory(op, made);
  }

  bool must_be_in_memory(const LoopOp& op, const InlinedOp& made) const {
    if (op.kind != LoopKind::kPointwise || op.is_random || op.is_large) return true;
    if (made.reads.size() > kMostReads) return true;
    std::size_t readers = 0;
    for (const std::int32_t written : op.writes) {
      if (is_output_[written]) return true;
      for (const std::int32_t reader : graph_.values[written].readers) {
        if (!is_here_[reader]) continue;
        ++readers;
        const LoopOp& by = graph_.ops[reader];
        const bool is_target = by.kind == LoopKind::kScatter && by.reads.front().value == written;
        if (!by.is_loop() || is_target) return true;
      }
    }
    return readers > 1 &&
           (made.reads.size() > kMostSharedReads || made.ops.size() > kMostSharedOps);
  }

  const LoopGraph& graph_;
  const std::vector<bool>& is_output_;
  std::vector<InlinedOp> inlined_;
  std::vector<bool> is_here_;
};

}  // namespace

std::vector<InlinedOp> inline_pointwise_ops(const LoopGraph& graph,
                                            std::span<const std::int32_t> ops,
                                            const std::vector<bool>& is_output) {
  return PointwiseInliner(graph, ops, is_output).finish();
}

}  // namespace perfmodel
