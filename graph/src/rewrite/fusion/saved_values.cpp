#include "saved_values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "builders/emit/graph_builder.hpp"
#include "flow_network.hpp"

namespace perfmodel {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

class PassPartitioner {
 public:
  explicit PassPartitioner(LoopGraph& graph)
      : graph_(graph),
        needs_gradient_(graph.values.size()),
        is_live_(graph.ops.size()),
        is_forward_(graph.ops.size()),
        is_open_(graph.ops.size()) {}

  PassesOfRegion split() {
    find_live_ops();
    find_gradients();
    find_forward_ops();
    forbid_long_lives();
    passes_.is_saved.assign(graph_.values.size(), false);
    cut();
    write_forward();
    write_backward();
    return std::move(passes_);
  }

 private:
  const LoopValue& value(std::int32_t index) const { return graph_.values[index]; }
  const LoopOp* maker(std::int32_t index) const {
    const std::int32_t op = value(index).made_by;
    return op < 0 ? nullptr : &graph_.ops[op];
  }
  std::int32_t count_of_ops() const { return static_cast<std::int32_t>(is_live_.size()); }

  template <class Visit>
  void for_each_live_reader(std::int32_t index, Visit&& visit) const {
    for (const std::int32_t reader : value(index).readers) {
      if (is_live_[reader]) visit(reader);
    }
  }

  // Results that nothing reads go.
  void find_live_ops() {
    for (std::int32_t op = count_of_ops(); op-- > 0;) {
      const LoopOp& made = graph_.ops[op];
      bool is_read = made.writes.empty();
      for (const std::int32_t written : made.writes) {
        is_read |= value(written).leaves;
        for_each_live_reader(written, [&](std::int32_t) { is_read = true; });
      }
      is_live_[op] = is_read;
    }
  }

  // Ops that depend on gradients from outside belong to the backward pass.
  void find_gradients() {
    std::vector<bool> is_read_forward(graph_.values.size());
    for (const LoopOp& op : graph_.ops) {
      if (op.in_backward) continue;
      for (const LoopRead& read : op.reads) is_read_forward[read.value] = true;
    }
    for (std::int32_t op = 0; op < count_of_ops(); ++op) {
      const LoopOp& made = graph_.ops[op];
      if (!made.in_backward) continue;
      bool needs = made.kind == LoopKind::kLibrary || made.is_random || made.stays;
      for (const LoopRead& read : made.reads) {
        const bool is_outside = value(read.value).made_by < 0 && !value(read.value).is_blank;
        needs |= needs_gradient_[read.value] || (is_outside && !is_read_forward[read.value]);
      }
      for (const std::int32_t written : made.writes) needs_gradient_[written] = needs;
    }
  }
  bool depends_on_gradients(std::int32_t op) const {
    const LoopOp& made = graph_.ops[op];
    if (made.writes.empty()) return made.in_backward;
    return needs_gradient_[made.writes.front()];
  }
  bool is_free(std::int32_t op) const { return is_live_[op] && !depends_on_gradients(op); }

  // Ops that the results of the forward pass need.
  void find_forward_ops() {
    for (std::int32_t op = count_of_ops(); op-- > 0;) {
      const LoopOp& made = graph_.ops[op];
      if (!is_free(op) || made.in_backward) continue;
      bool needed = made.writes.empty();
      for (const std::int32_t written : made.writes) {
        needed |= value(written).leaves;
        for_each_live_reader(written, [&](std::int32_t reader) { needed |= is_forward_[reader]; });
      }
      is_forward_[op] = needed;
    }
  }

  // "ban_if_used_far_apart": a loop that reads a value after a library call read something made of
  // it does not run twice, for the value would live on through whole layers.
  void forbid_long_lives() {
    is_far_.assign(count_of_ops(), false);
    for (std::size_t index = 0; index < graph_.values.size(); ++index) {
      std::vector<std::int32_t> readers;
      for_each_live_reader(static_cast<std::int32_t>(index), [&](std::int32_t reader) {
        if (is_forward_[reader]) readers.push_back(reader);
      });
      if (readers.size() < 2) continue;
      const std::int32_t first = first_library_call(readers);
      for (const std::int32_t reader : readers) {
        if (reader > first && graph_.ops[reader].is_loop()) is_far_[reader] = true;
      }
    }
  }
  // The first library call among `readers` and the ops that read values made from their results;
  // without one, the last of `readers`.
  std::int32_t first_library_call(const std::vector<std::int32_t>& readers) const {
    const std::int32_t last = readers.back();
    std::vector<std::int32_t> open = readers;
    std::int32_t first = last;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const LoopOp& op = graph_.ops[open[i]];
      if (!op.is_loop()) {
        first = std::min(first, open[i]);
        continue;
      }
      for (const std::int32_t written : op.writes) {
        for_each_live_reader(written, [&](std::int32_t reader) {
          if (reader < first && is_forward_[reader] &&
              std::ranges::find(open, reader) == open.end())
            open.push_back(reader);
        });
      }
    }
    return first;
  }

  bool runs_once(std::int32_t index) const {
    const LoopOp* op = maker(index);
    if (!op) return !value(index).is_blank;
    if (op->kind != LoopKind::kPointwise || op->is_random || op->runs_once) return true;
    if (is_far_[value(index).made_by]) return true;
    bool read_by_library = false;
    for_each_live_reader(index, [&](std::int32_t reader) {
      read_by_library |= depends_on_gradients(reader) && !graph_.ops[reader].is_loop();
    });
    return read_by_library;
  }

  // Values nearer to the backward pass are cheaper, and those that are in memory anyway.
  double cost(std::int32_t index, double distance) const {
    if (value(index).made_by < 0) return 0;
    bool in_memory = value(index).leaves || !maker(index)->is_loop();
    for_each_live_reader(index,
                         [&](std::int32_t reader) { in_memory |= !graph_.ops[reader].is_loop(); });
    const double weighted = static_cast<double>(std::max<std::int64_t>(1, value(index).bytes())) *
                            std::pow(1.1, std::clamp(distance, 1.0, 100.0));
    return in_memory ? weighted : 2 * weighted;
  }

  void cut() {
    const auto count = static_cast<std::int32_t>(graph_.values.size());
    std::vector<double> distance(count, kUnlimited);
    const std::int32_t source = 2 * count, sink = 2 * count + 1;
    FlowNetwork network(2 * static_cast<std::size_t>(count) + 2);
    for (std::int32_t op = count_of_ops(); op-- > 0;) {
      if (!is_live_[op]) continue;
      double nearest = depends_on_gradients(op) ? 0 : kUnlimited;
      for (const std::int32_t written : graph_.ops[op].writes) {
        nearest = std::min(nearest, distance[written]);
      }
      for (const LoopRead& read : graph_.ops[op].reads) {
        distance[read.value] = std::min(distance[read.value], nearest + 1);
      }
    }
    for (std::int32_t index = 0; index < count; ++index) {
      if (needs_gradient_[index] || distance[index] == kUnlimited) continue;
      network.add(2 * index, 2 * index + 1, cost(index, distance[index]));
      if (runs_once(index)) network.add(source, 2 * index, kUnlimited);
      bool is_needed = false;
      for_each_live_reader(index, [&](std::int32_t reader) {
        if (depends_on_gradients(reader)) {
          is_needed = true;
          return;
        }
        for (const std::int32_t written : graph_.ops[reader].writes) {
          network.add(2 * index + 1, 2 * written, kUnlimited);
        }
      });
      is_needed |= value(index).leaves && value(index).in_backward;
      if (is_needed) network.add(2 * index + 1, sink, kUnlimited);
    }
    const std::vector<bool> reached = network.reached_after_flow(source, sink);
    for (std::int32_t index = 0; index < count; ++index) {
      passes_.is_saved[index] = reached[2 * index] && !reached[2 * index + 1];
    }
  }

  void write_forward() {
    for (std::int32_t op = count_of_ops(); op-- > 0;) {
      if (!is_free(op) || is_forward_[op]) continue;
      for (const std::int32_t written : graph_.ops[op].writes) {
        bool needed = passes_.is_saved[written];
        for_each_live_reader(written, [&](std::int32_t reader) { needed |= is_forward_[reader]; });
        if (needed) is_forward_[op] = true;
      }
    }
    for (std::int32_t op = 0; op < count_of_ops(); ++op) {
      if (is_forward_[op]) passes_.forward.push_back(op);
    }
  }

  void write_backward() {
    again_.assign(graph_.values.size(), -1);
    for (std::int32_t op = 0; op < count_of_ops(); ++op) {
      const bool stays = is_live_[op] && !is_forward_[op] && depends_on_gradients(op);
      if (stays || (is_free(op) && leaves_backward(op))) write_again(op, stays);
    }
  }
  bool leaves_backward(std::int32_t op) const {
    return !is_forward_[op] && std::ranges::any_of(graph_.ops[op].writes, [&](std::int32_t index) {
      return value(index).leaves;
    });
  }

  // Writes the op for the backward pass, after the ops that it needs and that are not saved.
  void write_again(std::int32_t op, bool as_it_is) {
    if (is_open_[op]) throw Contradiction("an op reads its own result");
    is_open_[op] = true;
    write_with_makers(op, as_it_is);
    is_open_[op] = false;
  }

  void write_with_makers(std::int32_t op, bool as_it_is) {
    std::vector<LoopRead> reads = graph_.ops[op].reads;
    for (LoopRead& read : reads) {
      const std::int32_t made_by = value(read.value).made_by;
      if (made_by < 0 || needs_gradient_[read.value] || passes_.is_saved[read.value]) continue;
      if (again_[read.value] < 0) write_again(made_by, !is_forward_[made_by]);
      read.value = again_[read.value];
    }
    if (as_it_is) {
      set_reads(op, std::move(reads));
      for (const std::int32_t written : graph_.ops[op].writes) again_[written] = written;
      passes_.backward.push_back(op);
      return;
    }
    LoopOp copy = graph_.ops[op];
    copy.reads = std::move(reads);
    copy.in_backward = true;
    for (std::int32_t& written : copy.writes) {
      LoopValue made = value(written);
      made.tensor = LoopValue::kNoTensor;
      made.readers.clear();
      made.leaves = false;
      again_[written] = graph_.add(std::move(made));
      written = again_[written];
      again_.push_back(-1);
      needs_gradient_.push_back(true);
      passes_.is_saved.push_back(false);
    }
    passes_.backward.push_back(graph_.add(std::move(copy)));
  }
  void set_reads(std::int32_t op, std::vector<LoopRead> reads) {
    for (const LoopRead& read : reads) {
      std::vector<std::int32_t>& readers = graph_.values[read.value].readers;
      if (std::ranges::find(readers, op) == readers.end()) readers.push_back(op);
    }
    graph_.ops[op].reads = std::move(reads);
  }

  LoopGraph& graph_;
  std::vector<bool> needs_gradient_;                 // by value
  std::vector<bool> is_live_, is_forward_, is_far_;  // by op
  std::vector<bool> is_open_;                        // by op: its makers are being written again
  std::vector<std::int32_t> again_;                  // by value: the one of the backward pass
  PassesOfRegion passes_;
};

}  // namespace

PassesOfRegion split_passes(LoopGraph& graph) { return PassPartitioner(graph).split(); }

}  // namespace perfmodel
