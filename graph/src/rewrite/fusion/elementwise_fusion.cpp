#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "eager_kernels.hpp"
#include "eager_stretches.hpp"
#include "generated_kernels.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

class FusionWriter {
 public:
  FusionWriter(const StepView& step, const EagerFusion& fusion, std::string_view prefix)
      : source_(step.graph()), edit_(source_), prefix_(prefix) {
    for (const std::int32_t node : fusion.gone) {
      edit_.replace(node);
      for (std::int32_t at = source_.node(node).parent; at >= 0; at = source_.node(at).parent) {
        if (!only_calls_others(source_, at)) break;
        edit_.unwrap(at);
      }
    }
    for (const auto& [view, of] : fusion.views) {
      edit_.made().tensors[view].id = source_.tensors[of].id;
    }
    for (const EagerKernel& kernel : fusion.kernels) {
      edit_.replace(kernel.units.front().root, [this, &kernel] { write(kernel); });
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  void write(const EagerKernel& kernel) {
    edit_.copy().close_beside(kernel.units.front().root);
    GeneratedKernel made{.name = std::string(prefix_), .sizes = {kernel.elements}};
    for (const PointwiseUnit& unit : kernel.units) {
      made.name += fmt::format("_{}", unit.name);
      made.sequence = std::max(made.sequence, unit.sequence);
    }
    const auto argument = [](std::uint32_t tensor) {
      return Argument{.kind = Argument::Kind::kTensor, .index = tensor};
    };
    std::ranges::transform(kernel.reads, std::back_inserter(made.reads), argument);
    std::ranges::transform(kernel.writes, std::back_inserter(made.writes), argument);
    kernels_.write(edit_.builder(), made);
  }

  const ExecutionGraph& source_;
  GraphEdit edit_;
  std::string_view prefix_;
  GeneratedKernels kernels_;
};

Result<ExecutionGraph> fuse_stretches(const ExecutionGraph& graph, std::string_view prefix) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const StepView step(graph);
  const EagerFusion fusion = eager_kernels(step);
  if (fusion.kernels.empty()) return graph;
  ExecutionGraph made = FusionWriter(step, fusion, prefix).write();
  return fusion.was_cut ? fuse_stretches(made, prefix) : std::move(made);
}

}  // namespace

Result<ExecutionGraph> rewrite_elementwise_fusion(const ExecutionGraph& graph) {
  return fuse_stretches(graph, "triton_poi_fused");
}

Result<ExecutionGraph> rewrite_torchscript_fusion(const ExecutionGraph& graph) {
  return fuse_stretches(graph, "torchscript_fused");
}

}  // namespace perfmodel
