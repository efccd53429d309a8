#include "perfmodel/graph/rewrites/compiled_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Implementation = TrainingOptions::Implementation;

constexpr std::string_view kName = "compiled optimizer";

// Tensors that one update reads and writes.
struct UpdateTensors {
  std::vector<std::int64_t> read, written;
};

UpdateTensors tensors_of(const ReadUpdate& update) {
  UpdateTensors made{.read = {update.gradient}};
  for (const std::int64_t changed : {update.parameter, update.first, update.second}) {
    if (changed < 0) continue;
    made.read.push_back(changed);
    made.written.push_back(changed);
  }
  if (update.weight >= 0) made.written.push_back(update.weight);
  return made;
}

using ParameterList = std::vector<const ReadUpdate*>;

// The lists of parameters that fit into the arguments of one kernel each.
std::vector<ParameterList> split_into_kernels(const ParameterList& updates) {
  constexpr std::size_t kMostArguments = 250;
  std::vector<ParameterList> kernels;
  std::size_t arguments = kMostArguments;
  for (const ReadUpdate* update : updates) {
    const UpdateTensors tensors = tensors_of(*update);
    const std::size_t own = tensors.read.size() + tensors.written.size();
    if (arguments + own > kMostArguments) {
      kernels.emplace_back();
      arguments = 0;
    }
    kernels.back().push_back(update);
    arguments += own;
  }
  return kernels;
}

class RegionWriter {
 public:
  RegionWriter(GraphEdit& edit, const ReadStep& step, std::size_t number)
      : copy_(edit.copy()), graph_(edit.builder()), step_(step), number_(number) {}

  void write() {
    for (const std::int32_t op : step_.first) copy_.copy_tree(op);
    ParameterList dense;
    for (const ReadGroup& group : step_.groups) {
      for (const ReadUpdate& update : group.updates) {
        if (update.sparse) {
          copy_.copy_tree(update.last_op);
        } else {
          dense.push_back(&update);
        }
      }
    }
    copy_.close_to(step_.label);
    if (dense.empty()) return;
    graph_.begin_plain(fmt::format("Torch-Compiled Region: 1/{}", number_));
    std::size_t kernel = 0;
    for (const ParameterList& updates : split_into_kernels(dense)) write_kernel(updates, kernel++);
    graph_.end_op();
  }

 private:
  void write_kernel(const ParameterList& updates, std::size_t number) {
    std::vector<Value> read, written;
    std::int64_t elements = 0;
    for (const ReadUpdate* update : updates) {
      const UpdateTensors tensors = tensors_of(*update);
      for (const std::int64_t index : tensors.read) read.emplace_back(tensor(index));
      for (const std::int64_t index : tensors.written) written.emplace_back(tensor(index));
      elements += copy_.source().tensors[update->parameter].numel;
    }
    read.emplace_back(elements);
    graph_.begin_plain(fmt::format("triton_for_fused_{}", number), std::move(read));
    ExecutionGraph& made = graph_.graph_being_made();
    made.nodes.back().kernel_backend = made.names.intern("triton");
    graph_.end_op(std::move(written));
  }

  TensorRef tensor(std::int64_t index) {
    return graph_.tensor_of_source(static_cast<std::uint32_t>(index));
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  const ReadStep& step_;
  std::size_t number_;
};

bool is_fused(const ReadStep& step) {
  return std::ranges::any_of(step.groups, [](const ReadGroup& group) {
    return group.settings.implementation == Implementation::kFused;
  });
}

Result<void> check_step(const ExecutionGraph& graph, const ReadStep& step) {
  for (const ReadGroup& group : step.groups) {
    if (group.settings.implementation == Implementation::kEightBit) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("{}: expected ops of PyTorch, found a library's kernels for state in "
                              "8 bits, which Inductor cannot change",
                              kName));
    }
    for (const ReadUpdate& update : group.updates) {
      const Tensor& parameter = graph.tensors[update.parameter];
      if (parameter.on_gpu()) continue;
      return fail(ErrorCode::kImpossible,
                  fmt::format("{}: expected parameters on a GPU, found one of [{}] on a CPU", kName,
                              fmt::join(graph.shape(parameter), ", ")));
    }
  }
  return {};
}

}  // namespace

Result<ExecutionGraph> rewrite_compiled_optimizer(const ExecutionGraph& graph) {
  const StepView step(graph);
  if (auto good = step.check(kName, {}); !good) return Unexpected{good.error()};
  const auto& steps = step.optimizers();
  if (!steps) return Unexpected{steps.error()};
  if (steps->empty()) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("{}: expected a node Optimizer.step#..., found none in the graph", kName));
  }
  GraphEdit edit(step.graph(), step.dialect());
  std::size_t number = 0;
  for (const auto& [label, one] : *steps) {
    if (is_fused(one)) continue;
    if (auto good = check_step(step.graph(), one); !good) return Unexpected{good.error()};
    edit.refill(label, [&edit, &one = one, number] { RegionWriter(edit, one, number).write(); });
    ++number;
  }
  return number > 0 ? edit.write() : graph;
}

}  // namespace perfmodel
