#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiled_regions.hpp"
#include "compiled_writer.hpp"
#include "kept_ops.hpp"
#include "loop_addends.hpp"
#include "loop_kernels.hpp"
#include "loop_padding.hpp"
#include "loop_rules.hpp"
#include "perfmodel/graph/rewrites/compiled_optimizer.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite/memory/rerun_ops.hpp"
#include "saved_values.hpp"
#include "step/autograd_names.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

class RegionCompiler {
 public:
  RegionCompiler(const StepView& step, const CompiledRegion& region)
      : step_(step),
        graph_(step.graph()),
        is_inside_(graph_.nodes.size()),
        rules_(step, &is_inside_) {
    made_.region = region;
    for (const std::int32_t op : region.ops) mark(op);
    for (const std::int32_t wrapper : region.wrappers) is_inside_[wrapper] = true;
    for (const std::int32_t function : region.functions) mark(evaluate(function));
  }

  CompiledKernels compile(Epilogues epilogues) {
    for (const std::int32_t op : made_.region.ops) rules_.read(op);
    loops().set_backward(true);
    for (const std::int32_t function : made_.region.functions) {
      loops().set_stays(runs_ops_again(function));
      for (const std::int32_t child : graph_.children(evaluate(function))) rules_.read(child);
    }
    find_what_leaves();
    rename_views();
    made_.loops = std::move(loops().graph());
    LoopGraph& graph = made_.loops;
    PassesOfRegion passes = split_passes(graph);
    std::vector<bool> is_output = passes.is_saved;
    for (std::size_t i = 0; i < is_output.size(); ++i) {
      is_output[i] = is_output[i] || graph.values[i].leaves;
    }
    for (std::vector<std::int32_t>* ops : {&passes.forward, &passes.backward}) {
      pad_products(graph_, graph, *ops, is_output);
      place_addends(graph, *ops, is_output);
    }
    made_.forward = loop_kernels(graph, passes.forward, is_output, epilogues);
    made_.backward = loop_kernels(graph, passes.backward, is_output, epilogues);
    keep_host_ops(
        step_, is_inside_, [this](std::int32_t node) { return is_outside(node); }, made_);
    return std::move(made_);
  }

 private:
  LoopBuilder& loops() { return rules_.loops(); }
  std::int32_t evaluate(std::int32_t function) const {
    return step_.backward().functions[function].evaluate;
  }
  void mark(std::int32_t root) {
    walk_tree(
        graph_, root,
        [&](std::int32_t node) {
          const bool leaves = accumulates_parameter(node);
          if (leaves) made_.accumulations.push_back(node);
          return is_inside_[node] = !leaves;
        },
        [] {});
  }

  // The gradient of a checkpoint's input goes on to other functions, a parameter's does not.
  bool accumulates_parameter(std::int32_t node) const {
    if (!is_accumulation(node)) return false;
    const std::int32_t end = last_below(graph_, node);
    bool goes_on = false;
    for (std::int32_t inside = node; inside <= end; ++inside) {
      for_each_tensor(graph_, graph_.inputs(inside), [&](const Tensor& gradient) {
        for (const std::int32_t reader : step_.storages().readers(step_.storages().of(gradient))) {
          goes_on |= reader > end && step_.backward().in_backward[reader] &&
                     graph_.find_around(reader, [&](auto at) { return is_accumulation(at); }) < 0;
        }
      });
    }
    return !goes_on;
  }
  bool is_accumulation(std::int32_t node) const {
    return graph_.name(node).starts_with(kEvaluate) && graph_.name(node).ends_with(kAccumulate);
  }

  bool runs_ops_again(std::int32_t function) const {
    const std::int32_t node = step_.backward().functions[function].function;
    if (graph_.name(node) == kCheckpointBackward) return true;
    return std::ranges::any_of(graph_.children(node), [&](std::int32_t child) {
      return graph_.name(child) == kRecomputeRegion;
    });
  }

  // Nodes around the region belong to it too.
  bool is_outside(std::int32_t node) const {
    return !is_inside_[node] && !graph_.node(node).is_label && !graph_.node(node).is_structural;
  }
  template <class Readers>
  bool is_read_outside(const Readers& readers) const {
    return std::ranges::any_of(readers, [&](std::int32_t reader) { return is_outside(reader); });
  }

  template <class Visit>
  void for_each_mention(Visit&& visit) const {
    for (std::int32_t node = 0; node < static_cast<std::int32_t>(graph_.nodes.size()); ++node) {
      if (!is_inside_[node]) continue;
      for_each_tensor(graph_, graph_.inputs(node), visit);
      for_each_tensor(graph_, graph_.outputs(node), visit);
    }
  }

  void find_what_leaves() {
    LoopGraph& graph = loops().graph();
    for_each_mention([&](const Tensor& mention) {
      const std::int32_t last = loops().last_value(mention);
      if (last < 0 || graph.values[last].leaves) return;
      const std::int32_t storage = step_.storages().of(mention);
      const std::int32_t maker = step_.storages().maker(storage);
      if (graph.values[last].made_by < 0) {
        const bool is_allocated = graph.values[last].is_blank && maker >= 0 && is_inside_[maker];
        if (is_allocated && is_read_outside(step_.storages().readers(storage))) {
          made_.kept.insert(maker);
        }
        return;
      }
      const bool existed = maker < 0 || is_outside(maker);
      graph.values[last].leaves = existed || is_read_outside(step_.storages().readers(storage));
    });
  }

  // Views are gone: their readers take the viewed tensors. If the program goes on with a view
  // alone, the kernel makes the view.
  void rename_views() {
    FactsOfValues<std::int64_t> taken(step_.tensors(), -1);  // by root: the mention that is made
    FactsOfValues<char> is_done(step_.tensors());
    const auto entry = [&](const Tensor& mention) {
      return static_cast<std::uint32_t>(&mention - graph_.tensors.data());
    };
    LoopGraph& graph = loops().graph();
    for_each_mention([&](const Tensor& mention) {
      if (std::exchange(is_done[mention], true)) return;
      const std::uint32_t root = loops().root(mention);
      if (graph_.tensors[root].id == mention.id) return;
      if (!is_read_outside(step_.tensors().readers(step_.tensors().of(mention)))) return;
      const std::int32_t last = loops().last_value(mention);
      const bool made_here = last >= 0 && graph.values[last].made_by >= 0;
      if (made_here && !graph.values[last].leaves) return;  // another tensor has its id by now
      const Tensor& of = graph_.tensors[root];
      const bool can_be_made = made_here && taken[of] < 0 &&
                               graph.values[last].numel == mention.numel &&
                               !is_read_outside(step_.tensors().readers(step_.tensors().of(of)));
      if (can_be_made) {
        taken[of] = entry(mention);
        graph.values[last].tensor = entry(mention);
      } else {
        made_.views.push_back(entry(mention));
      }
    });
    for_each_mention([&](const Tensor& mention) {
      std::uint32_t root = loops().root(mention);
      if (const std::int64_t by = taken[graph_.tensors[root]]; by >= 0) {
        root = static_cast<std::uint32_t>(by);
      }
      if (graph_.tensors[root].id != mention.id) made_.renamed.emplace_back(entry(mention), root);
    });
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  std::vector<bool> is_inside_;
  LoopRules rules_;
  CompiledKernels made_;
};

// Names the program that was expected instead, for an op that can neither be compiled nor run
// between regions.
std::string_view expected_instead(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  if (graph.names.text(node.kernel_backend) == "triton") return "a program that is not compiled";
  // Liger puts the gradient of the logits where they are, which no region sees.
  if (name.starts_with("liger::")) return "a loss of PyTorch (compilation fuses it)";
  if (name == "c10d::_allgather_base_" || name == "c10d::_reduce_scatter_base_") {
    return "layers without sequence parallelism and shards of parameters";
  }
  return "";
}

Unexpected refuse_compilation(std::string found) {
  return fail(ErrorCode::kImpossible, fmt::format("compile: expected {}", found));
}

// Ops of the host stay outside, so it must be clear which tensors are theirs. A wrapped number and
// an empty tensor may have the id of another one.
Result<void> check_devices(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  enum : char { kUnknown, kOnGpu, kElsewhere };
  FactsOfValues<char> known(step.storages(), kUnknown);
  std::string_view name;
  for (const Node& node : graph.nodes) {
    const auto look = [&](const Tensor& tensor) {
      const bool is_wrapped = tensor.rank == 0 && !tensor.on_gpu();
      if (tensor.storage_id == 0 || tensor.numel == 0 || is_wrapped) return;
      const char place = tensor.on_gpu() ? kOnGpu : kElsewhere;
      if (known[tensor] != kUnknown && known[tensor] != place) name = graph.name(node);
      known[tensor] = place;
    };
    for_each_tensor(graph, graph.inputs(node), look);
    for_each_tensor(graph, graph.outputs(node), look);
    if (name.empty()) continue;
    return refuse_compilation(
        fmt::format("each tensor on one device, found {} (node {}) with another op's on another",
                    name, node.id));
  }
  return {};
}

// All ops that a checkpoint runs again must be in the region of its backward function.
Result<void> check_checkpoints(const StepView& step, const CompiledRegion& region) {
  const ExecutionGraph& graph = step.graph();
  for (const std::int32_t wrapper : region.wrappers) {
    const std::int32_t end = last_below(graph, wrapper);
    for (std::int32_t node = wrapper; node <= end; ++node) {
      const bool is_op = step.forward().op_around(node) == node;
      if (!is_op || std::ranges::binary_search(region.ops, node)) continue;
      return refuse_compilation(
          fmt::format("checkpoints without graph breaks, found {} (node {}) in {}",
                      graph.name(node), graph.node(node).id, graph.name(wrapper)));
    }
  }
  return {};
}

}  // namespace

Result<ExecutionGraph> rewrite_compiled(const ExecutionGraph& graph,
                                        const CompileRewrite& rewrite) {
  const StepView step(graph);
  if (auto good = step.check("compile", {.no_offload = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  for (const Node& node : graph.nodes) {
    if (const std::string_view expected = expected_instead(graph, node); !expected.empty()) {
      return refuse_compilation(
          fmt::format("{}, found {} (node {})", expected, graph.name(node), node.id));
    }
  }
  if (auto good = check_devices(step); !good) return Unexpected{good.error()};
  const bool on_gpu = std::ranges::any_of(graph.tensors, &Tensor::on_gpu);
  if (!on_gpu) {
    return refuse_compilation("ops on a GPU, found them on a CPU: --retarget comes first");
  }
  const Epilogues epilogues =
      rewrite.mode == CompileMode::kMaxAutotune ? Epilogues::kInProducts : Epilogues::kApart;
  std::vector<CompiledKernels> compiled;
  for (const CompiledRegion& region : compiled_regions(step, rewrite.extent)) {
    if (auto good = check_checkpoints(step, region); !good) return Unexpected{good.error()};
    CompiledKernels kernels = RegionCompiler(step, region).compile(epilogues);
    if (!kernels.forward.empty() || !kernels.backward.empty())
      compiled.push_back(std::move(kernels));
  }
  if (compiled.empty()) return refuse_compilation("a forward pass on a GPU, found none");
  ExecutionGraph made = write_compiled(step, compiled, rewrite);
  if (rewrite.extent != CompileExtent::kStep) return made;
  return rewrite_compiled_optimizer(made);
}

}  // namespace perfmodel
