#include "perfmodel/graph/rewrites/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pointwise_unit.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/backward_pass.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace {

// Ops that become one.
struct Run {
  std::vector<PointwiseUnit> units;
  std::vector<std::int32_t> functions;         // evaluate_function nodes that are gone
  std::vector<std::uint32_t> inputs, outputs;  // tensors; outputs by finish()
};

// The run that grows.
class OpenRun {
 public:
  explicit OpenRun(const ExecutionGraph& graph) : graph_(&graph) {}

  bool empty() const { return run_.units.empty(); }

  // Whether the op can be part of the run. Anything may begin one.
  bool fits(const PointwiseUnit& unit) const {
    return empty() || (has_same_shape(unit) && sees_same_tensors(unit));
  }

  // Whether it reads something that the run made, or as large a tensor as the run reads anyway.
  bool shares(const PointwiseUnit& unit) const {
    return empty() || std::ranges::any_of(unit.inputs, [this](std::uint32_t input) {
             const Tensor& tensor = graph_->tensors[input];
             return tensor.numel == result().numel && memory_.contains(tensor.storage_id);
           });
  }

  void take(const PointwiseUnit& unit) {
    for (std::uint32_t input : unit.inputs) {
      const Tensor& tensor = graph_->tensors[input];
      if (!tensor.on_gpu()) {
        if (tensor.on_cpu()) add_input(input);
        continue;
      }
      Memory& memory =
          memory_.try_emplace(tensor.storage_id, Memory{.id = tensor.id}).first->second;
      if (!memory.written) add_input(input);
      memory.several_views |= memory.id != tensor.id;
    }
    for (std::uint32_t output : unit.outputs) write(output, is_read(unit, output));
    run_.units.push_back(unit);
  }

  void take_functions(const std::vector<std::int32_t>& functions) {
    run_.functions.insert(run_.functions.end(), functions.begin(), functions.end());
  }

  // What the run wrote last into each storage, in the order of the first write there.
  struct Written {
    std::uint32_t tensor = 0;
    bool existed = false;  // before the run, which changes it in place
  };
  std::vector<Written> written() const {
    std::vector<Written> found;
    for (std::int64_t storage : order_) {
      const Memory& memory = memory_.at(storage);
      found.push_back({memory.tensor, memory.existed});
    }
    return found;
  }

  Run& run() { return run_; }

 private:
  struct Memory {
    std::int64_t id = 0;  // of the tensor by which the run knows it
    bool written = false, existed = false, several_views = false;
    std::uint32_t tensor = 0;
  };

  const Tensor& result() const { return graph_->tensors[run_.units.front().outputs.front()]; }

  bool has_same_shape(const PointwiseUnit& unit) const {
    const Tensor& made = graph_->tensors[unit.outputs.front()];
    return made.device == result().device &&
           std::ranges::equal(graph_->shape(made), graph_->shape(result()));
  }

  // No memory that one side writes is known to the other as another tensor.
  bool sees_same_tensors(const PointwiseUnit& unit) const {
    const auto same_tensor = [this](std::uint32_t index, bool writes) {
      const Tensor& tensor = graph_->tensors[index];
      const auto known = memory_.find(tensor.storage_id);
      if (known == memory_.end()) return true;
      const Memory& memory = known->second;
      if (writes || memory.written) return memory.id == tensor.id && !memory.several_views;
      return true;  // several views may be read
    };
    const auto readable = [&](std::uint32_t index) { return same_tensor(index, false); };
    // A result that is new may lie where one of the run lay that is dead by now.
    const auto writable = [&](std::uint32_t index) {
      return !is_read(unit, index) || same_tensor(index, true);
    };
    return std::ranges::all_of(unit.inputs, readable) &&
           std::ranges::all_of(unit.outputs, writable);
  }

  bool is_read(const PointwiseUnit& unit, std::uint32_t output) const {
    return std::ranges::any_of(unit.inputs, [&](std::uint32_t input) {
      return graph_->tensors[input].storage_id == graph_->tensors[output].storage_id;
    });
  }

  void add_input(std::uint32_t index) {
    const bool known = std::ranges::any_of(run_.inputs, [&](std::uint32_t input) {
      return graph_->tensors[input].id == graph_->tensors[index].id;
    });
    if (!known) run_.inputs.push_back(index);
  }

  // In place, or a tensor that is new: memory of one that is dead may be used again.
  void write(std::uint32_t index, bool in_place) {
    const Tensor& tensor = graph_->tensors[index];
    Memory& memory = memory_[tensor.storage_id];
    if (!memory.written) order_.push_back(tensor.storage_id);
    memory.existed = in_place && (memory.existed || !memory.written);
    memory.several_views &= in_place;
    memory.written = true;
    memory.id = tensor.id;
    memory.tensor = index;
  }

  const ExecutionGraph* graph_;
  Run run_;
  std::unordered_map<std::int64_t, Memory> memory_;  // by storage
  std::vector<std::int64_t> order_;
};

class RunFinder {
 public:
  explicit RunFinder(const ExecutionGraph& graph) : graph_(graph), open_(graph) {}

  std::vector<Run> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).parent < 0) walk(i);
    }
    close();
    note_uses();
    for (OpenRun& run : found_) finish(run);
    std::vector<Run> runs;
    for (OpenRun& run : found_) runs.push_back(std::move(run.run()));
    return runs;
  }

 private:
  // Holds ops and does nothing itself.
  bool is_container(const Node& op) const {
    if (op.is_label || op.is_structural || op.scope == Scope::kBackward) return true;
    return is_evaluate_function(graph_, op) ||
           (op.children_count > 0 && graph_.name(op).find("::") == std::string_view::npos);
  }

  void walk(std::int32_t index) {
    for (std::int32_t child : children_in_order(graph_, graph_.node(index))) {
      if (is_evaluate_function(graph_, graph_.node(child))) {
        walk_function(child);
      } else if (is_container(graph_.node(child))) {
        close();
        walk(child);
        close();
      } else {
        add(child);
      }
    }
    close();
  }

  // Ops of a function and those behind it in the engine's node.
  std::vector<std::int32_t> ops_of(std::int32_t evaluate) const {
    std::vector<std::int32_t> ops;
    for (std::int32_t child : children_in_order(graph_, graph_.node(evaluate))) {
      if (graph_.node(child).scope != Scope::kBackward) {
        ops.push_back(child);
        continue;
      }
      const auto inner = children_in_order(graph_, graph_.node(child));
      ops.insert(ops.end(), inner.begin(), inner.end());
    }
    return ops;
  }

  bool accumulates(std::int32_t evaluate) const {
    return graph_.name(evaluate).ends_with("AccumulateGrad");
  }

  void walk_function(std::int32_t evaluate) {
    const std::vector<std::int32_t> ops = ops_of(evaluate);
    if (ops.empty() && accumulates(evaluate)) return close();  // the gradient is read there
    if (ops.empty()) {
      if (!open_.empty()) waiting_.push_back(evaluate);
      return;
    }
    if (!open_.empty() && absorb(evaluate, ops)) return;
    close();
    for (std::int32_t op : ops) {
      if (is_container(graph_.node(op))) {
        close();
        walk(op);
      } else {
        add(op);
      }
    }
  }

  // Whether all of a function belongs to the run: one of its ops does, the others fit.
  bool absorb(std::int32_t evaluate, const std::vector<std::int32_t>& ops) {
    OpenRun longer = open_;
    bool shares = false;
    for (std::int32_t op : ops) {
      const auto unit = pointwise_unit(graph_, op);
      if (!unit || !longer.fits(*unit)) return false;
      shares |= open_.shares(*unit);
      longer.take(*unit);
    }
    if (!shares) return false;
    waiting_.push_back(evaluate);
    longer.take_functions(waiting_);
    waiting_.clear();
    open_ = std::move(longer);
    return true;
  }

  void add(std::int32_t op) {
    const auto unit = pointwise_unit(graph_, op);
    if (!unit || !open_.fits(*unit) || !open_.shares(*unit)) close();
    if (unit) open_.take(*unit);
  }

  void close() {
    if (open_.run().units.size() > 1) found_.push_back(open_);
    open_ = OpenRun(graph_);
    waiting_.clear();
  }

  struct Use {
    std::int32_t node = -1;
    bool reads = false;  // else the storage is made there
  };

  void note_uses() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      for_each_tensor(graph_, graph_.inputs(i), [&](const Tensor& t) {
        uses_[t.storage_id].push_back({i, true});
      });
      for_each_tensor(graph_, graph_.outputs(i), [&](const Tensor& t) {
        auto& uses = uses_[t.storage_id];
        if (uses.empty() || uses.back().node != i) uses.push_back({i, false});
      });
    }
  }

  // Whether something behind the run reads what it wrote.
  bool is_read_later(std::int64_t storage, const Run& run) const {
    const auto inside = [&](std::int32_t index) {
      for (; index >= run.units.front().root; index = graph_.node(index).parent) {
        const auto is_root = [&](const PointwiseUnit& unit) { return unit.root == index; };
        if (std::ranges::any_of(run.units, is_root)) return true;
        if (std::ranges::find(run.functions, index) != run.functions.end()) return true;
      }
      return false;
    };
    const auto& uses = uses_.at(storage);
    auto use = std::ranges::upper_bound(uses, run.units.front().root, {}, &Use::node);
    for (; use != uses.end(); ++use) {
      if (!inside(use->node)) return use->reads;
    }
    return false;
  }

  void finish(OpenRun& open) const {
    Run& run = open.run();
    const auto last = graph_.tensors[run.units.back().outputs.front()].storage_id;
    for (const OpenRun::Written& written : open.written()) {
      const std::int64_t storage = graph_.tensors[written.tensor].storage_id;
      if (written.existed || storage == last || is_read_later(storage, run)) {
        run.outputs.push_back(written.tensor);
      }
    }
  }

  const ExecutionGraph& graph_;
  OpenRun open_;
  std::vector<OpenRun> found_;
  std::vector<std::int32_t> waiting_;  // functions without ops behind the open run
  std::unordered_map<std::int64_t, std::vector<Use>> uses_;  // by storage
};

class RunWriter {
 public:
  RunWriter(const ExecutionGraph& graph, const std::vector<Run>& runs)
      : source_(graph), edit_(graph) {
    for (const Run& run : runs) {
      for (const PointwiseUnit& unit : run.units) edit_.replace(unit.root);
      for (const std::int32_t function : run.functions) edit_.replace(function);
      edit_.replace(run.units.front().root, [this, &run] { write(run); });
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  void write(const Run& run) {
    edit_.copy().close_beside(run.units.front().root);
    GraphBuilder& builder = edit_.builder();
    std::int64_t sequence = -1;
    for (const PointwiseUnit& unit : run.units) sequence = std::max(sequence, unit.sequence);
    builder.begin_plain(name(run), {}, sequence);
    ExecutionGraph& made = builder.graph_being_made();
    Node& node = made.nodes.back();
    node.kernel_backend = made.names.intern("triton");
    const Tensor& result = source_.tensors[run.units.front().outputs.front()];
    const auto append = [&made](const std::vector<std::uint32_t>& tensors) {
      const auto begin = static_cast<std::uint32_t>(made.arguments.size());
      for (std::uint32_t tensor : tensors) {
        made.arguments.push_back({.kind = Argument::Kind::kTensor, .index = tensor});
      }
      return begin;
    };
    node.inputs_begin = append(run.inputs);
    made.arguments.push_back({.kind = Argument::Kind::kInt, .integer = result.numel});
    node.inputs_count = static_cast<std::uint32_t>(run.inputs.size() + 1);
    node.outputs_begin = append(run.outputs);
    node.outputs_count = static_cast<std::uint32_t>(run.outputs.size());
    builder.close();
  }

  // Equal kernels have one name: the same ops on tensors of the same shapes and types.
  std::string name(const Run& run) {
    std::string ops = "triton_poi_fused";
    for (const PointwiseUnit& unit : run.units) ops += fmt::format("_{}", unit.name);
    std::string kernel = ops;
    for (const auto* tensors : {&run.inputs, &run.outputs}) {
      for (std::uint32_t index : *tensors) {
        const Tensor& tensor = source_.tensors[index];
        kernel +=
            fmt::format(" {}[{}]", to_string(tensor.dtype), fmt::join(source_.shape(tensor), ","));
      }
      kernel += " ->";
    }
    const auto [at, is_new] = kernels_.try_emplace(std::move(kernel), kernels_.size());
    return fmt::format("{}_{}", ops, at->second);
  }

  const ExecutionGraph& source_;
  GraphEdit edit_;
  std::map<std::string, std::size_t> kernels_;
};

}  // namespace

Result<ExecutionGraph> rewrite_elementwise_fusion(const ExecutionGraph& graph) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const std::vector<Run> runs = RunFinder(graph).find();
  if (runs.empty()) return graph;
  return RunWriter(graph, runs).write();
}

}  // namespace perfmodel
