#include "kept_ops.hpp"

#include <set>

#include "step/tensor_arguments.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

bool is_of_host(const ExecutionGraph& graph, std::int32_t node) {
  bool on_gpu = false;
  const auto look = [&](const Tensor& tensor) { on_gpu = on_gpu || tensor.on_gpu(); };
  for_each_tensor(graph, graph.inputs(node), look);
  for_each_tensor(graph, graph.outputs(node), look);
  return !on_gpu;
}

class HostOps {
 public:
  HostOps(const StepView& step, const std::vector<bool>& is_inside)
      : step_(step), graph_(step.graph()), is_inside_(is_inside) {}

  // The makers of the tensors that `root` and the nodes below it read.
  void keep_makers(std::int32_t root) {
    walk_tree(
        graph_, root,
        [&](std::int32_t node) {
          keep_makers_of_read(node, root);
          return true;
        },
        [] {});
  }
  // The makers, before `root`, of one node's inputs.
  void keep_makers_of_read(std::int32_t node, std::int32_t root) {
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& read) {
      if (read.on_cpu() && read.storage_id != 0) keep_maker(read, root);
    });
  }
  const std::set<std::int32_t>& kept() const { return kept_; }

 private:
  void keep_maker(const Tensor& read, std::int32_t root) {
    const std::int32_t maker = step_.tensors().maker(step_.tensors().of(read));
    const bool is_before = maker >= 0 && maker < root && is_inside_[maker];
    if (is_before && is_of_host(graph_, maker) && kept_.insert(maker).second) keep_makers(maker);
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const std::vector<bool>& is_inside_;
  std::set<std::int32_t> kept_;
};

}  // namespace

void keep_host_ops(const StepView& step, const std::vector<bool>& is_inside,
                   const std::function<bool(std::int32_t)>& is_outside, CompiledKernels& compiled) {
  HostOps ops(step, is_inside);
  for (const auto* kernels : {&compiled.forward, &compiled.backward}) {
    for (const LoopKernel& kernel : *kernels) {
      if (kernel.kind != LoopKind::kLibrary) continue;
      ops.keep_makers(compiled.loops.ops[kernel.ops.front()].node);
    }
  }
  for (std::int32_t node = 0; node < static_cast<std::int32_t>(is_inside.size()); ++node) {
    if (is_outside(node)) ops.keep_makers_of_read(node, node);
  }
  compiled.kept.insert(ops.kept().begin(), ops.kept().end());
}

}  // namespace perfmodel
