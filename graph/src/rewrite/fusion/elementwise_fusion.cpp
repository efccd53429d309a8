#include "perfmodel/graph/rewrites/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "pointwise_unit.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

// Ops that become one. Tensors by index in the graph.
struct Run {
  std::vector<PointwiseUnit> units;
  std::vector<std::int32_t> functions;  // evaluate_function nodes that are gone
  std::vector<std::uint32_t> inputs, outputs;
};

// The run that grows, and how it knows the storages of its tensors.
class OpenRun {
 public:
  explicit OpenRun(const StepView& step) : step_(&step) {}

  bool empty() const { return run_.units.empty(); }
  std::size_t size() const { return run_.units.size(); }

  // Whether the op can be part of the run. Anything may begin one.
  bool fits(const PointwiseUnit& unit) const {
    if (empty()) return true;
    const Tensor& output = tensor(unit.outputs.front());
    const ExecutionGraph& graph = step_->graph();
    return output.device == result().device &&
           std::ranges::equal(graph.shape(output), graph.shape(result())) &&
           sees_same_tensors(unit);
  }

  // Whether it reads something that the run made, or as large a tensor as the run reads anyway.
  bool shares(const PointwiseUnit& unit) const {
    return empty() || std::ranges::any_of(unit.inputs, [this](std::uint32_t input) {
             return tensor(input).numel == result().numel && find_memory(input);
           });
  }

  void add(const PointwiseUnit& unit) {
    for (const std::uint32_t input : unit.inputs) read(input);
    for (const std::uint32_t output : unit.outputs) write(output);
    run_.units.push_back(unit);
  }

  void add_functions(const std::vector<std::int32_t>& functions) {
    run_.functions.insert(run_.functions.end(), functions.begin(), functions.end());
  }

  // Gives what changed in place, the last result and what others read: by storage, as it was
  // written last, in the order of the first write.
  Run finish() {
    const std::int32_t last = storage(run_.units.back().outputs.front());
    for (const std::int32_t written : written_) {
      const Memory& memory = memory_.at(written);
      if (memory.existed || written == last || is_read_elsewhere(written)) {
        run_.outputs.push_back(memory.mention);
      }
    }
    return std::move(run_);
  }

 private:
  struct Memory {
    std::uint32_t mention = 0;  // of the tensor by which the run knows it
    bool existed = false;       // before the run
    bool written = false, several_views = false;
  };

  const Tensor& tensor(std::uint32_t index) const { return step_->graph().tensors[index]; }
  const Tensor& result() const { return tensor(run_.units.front().outputs.front()); }
  std::int32_t storage(std::uint32_t index) const { return step_->storages().of(tensor(index)); }

  const Memory* find_memory(std::uint32_t index) const {
    const auto known = memory_.find(storage(index));
    return known == memory_.end() ? nullptr : &known->second;
  }

  bool is_known_as(const Memory& memory, std::uint32_t index) const {
    return tensor(memory.mention).id == tensor(index).id && !memory.several_views;
  }

  // No memory that one side writes is known to the other as another tensor. Several views may be
  // read.
  bool sees_same_tensors(const PointwiseUnit& unit) const {
    const auto can_write = [&](std::uint32_t index) {
      const Memory* memory = find_memory(index);
      return !memory || is_known_as(*memory, index);
    };
    const auto can_read = [&](std::uint32_t index) {
      const Memory* memory = find_memory(index);
      return !memory || !memory->written || is_known_as(*memory, index);
    };
    return std::ranges::all_of(unit.inputs, can_read) &&
           std::ranges::all_of(unit.outputs, can_write);
  }

  void read(std::uint32_t index) {
    if (!tensor(index).on_gpu()) {
      if (tensor(index).on_cpu()) add_input(index);
      return;
    }
    Memory& memory = memory_.try_emplace(storage(index), Memory{.mention = index, .existed = true})
                         .first->second;
    if (!memory.written) add_input(index);
    memory.several_views |= tensor(memory.mention).id != tensor(index).id;
  }

  void add_input(std::uint32_t index) {
    const auto same = [&](std::uint32_t input) { return tensor(input).id == tensor(index).id; };
    if (std::ranges::none_of(run_.inputs, same)) run_.inputs.push_back(index);
  }

  void write(std::uint32_t index) {
    Memory& memory = memory_[storage(index)];
    if (!memory.written) written_.push_back(storage(index));
    memory.written = true;
    memory.mention = index;
  }

  bool is_inside(std::int32_t node) const {
    const auto found = step_->graph().find_around(node, [&](std::int32_t around) {
      const auto is_root = [&](const PointwiseUnit& unit) { return unit.root == around; };
      return std::ranges::any_of(run_.units, is_root) || contains(run_.functions, around);
    });
    return found >= 0;
  }

  bool is_read_elsewhere(std::int32_t storage) const {
    const auto readers = step_->storages().readers(storage);
    return !std::ranges::all_of(readers, [&](std::int32_t reader) { return is_inside(reader); });
  }

  const StepView* step_;
  Run run_;
  std::unordered_map<std::int32_t, Memory> memory_;  // by storage
  std::vector<std::int32_t> written_;                // storages in the order of the first write
};

class RunFinder {
 public:
  explicit RunFinder(const StepView& step) : step_(step), graph_(step.graph()), open_(step) {}

  std::vector<Run> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).parent < 0) walk(i);
    }
    return std::move(runs_);
  }

 private:
  void walk(std::int32_t region) {
    close();
    for (const std::int32_t child : children_in_order(graph_, graph_.node(region))) {
      if (is_evaluate_function(graph_, graph_.node(child))) {
        walk_function(child);
      } else {
        walk_or_add(child);
      }
    }
    close();
  }

  void walk_or_add(std::int32_t node) {
    if (is_region(graph_, graph_.node(node))) {
      walk(node);
    } else {
      add(node);
    }
  }

  // Ops of a function and those behind it in the engine's node.
  std::vector<std::int32_t> ops_of(std::int32_t evaluate) const {
    std::vector<std::int32_t> ops;
    for (const std::int32_t child : children_in_order(graph_, graph_.node(evaluate))) {
      if (graph_.node(child).scope != Scope::kBackward) {
        ops.push_back(child);
        continue;
      }
      const auto inner = children_in_order(graph_, graph_.node(child));
      ops.insert(ops.end(), inner.begin(), inner.end());
    }
    return ops;
  }

  void walk_function(std::int32_t evaluate) {
    const std::vector<std::int32_t> ops = ops_of(evaluate);
    if (ops.empty()) {
      if (graph_.name(evaluate).ends_with("AccumulateGrad")) return close();  // reads the gradient
      if (!open_.empty()) waiting_.push_back(evaluate);
      return;
    }
    if (!open_.empty() && absorb(evaluate, ops)) return;
    close();
    for (const std::int32_t op : ops) walk_or_add(op);
  }

  // Whether all of a function belongs to the run: one of its ops does, the others fit.
  bool absorb(std::int32_t evaluate, const std::vector<std::int32_t>& ops) {
    OpenRun longer = open_;
    bool shares = false;
    for (const std::int32_t op : ops) {
      const auto unit = pointwise_unit(graph_, op);
      if (!unit || !longer.fits(*unit)) return false;
      shares |= open_.shares(*unit);
      longer.add(*unit);
    }
    if (!shares) return false;
    waiting_.push_back(evaluate);
    longer.add_functions(std::exchange(waiting_, {}));
    open_ = std::move(longer);
    return true;
  }

  void add(std::int32_t op) {
    const auto unit = pointwise_unit(graph_, op);
    if (!unit || !open_.fits(*unit) || !open_.shares(*unit)) close();
    if (unit) open_.add(*unit);
  }

  void close() {
    if (open_.size() > 1) runs_.push_back(open_.finish());
    open_ = OpenRun(step_);
    waiting_.clear();
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  OpenRun open_;
  std::vector<Run> runs_;
  std::vector<std::int32_t> waiting_;  // functions without ops behind the open run
};

class RunWriter {
 public:
  RunWriter(const ExecutionGraph& graph, const std::vector<Run>& runs, std::string_view kernel)
      : source_(graph), edit_(graph), kernel_(kernel) {
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
    std::string ops(kernel_);
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
  std::string_view kernel_;  // how names begin
  std::map<std::string, std::size_t> kernels_;
};

Result<ExecutionGraph> fuse_runs(const ExecutionGraph& graph, std::string_view kernel) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const StepView step(graph);
  const std::vector<Run> runs = RunFinder(step).find();
  if (runs.empty()) return graph;
  return RunWriter(step.graph(), runs, kernel).write();
}

}  // namespace

Result<ExecutionGraph> rewrite_elementwise_fusion(const ExecutionGraph& graph) {
  return fuse_runs(graph, "triton_poi_fused");
}

Result<ExecutionGraph> rewrite_torchscript_fusion(const ExecutionGraph& graph) {
  return fuse_runs(graph, "torchscript_fused");
}

}  // namespace perfmodel
