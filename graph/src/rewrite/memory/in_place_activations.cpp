#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint_segments.hpp"
#include "ops/rows.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

struct InPlaceOp {
  std::string_view plain, plain_backward, by, by_backward;
  std::size_t results, gradients;  // numbers of results of the plain op, and of arguments of its
                                   // backward op
};
constexpr InPlaceOp kGelu = {.plain = "aten::gelu",
                             .plain_backward = "aten::gelu_backward",
                             .by = "tempo::gelu",
                             .by_backward = "tempo::gelu_backward",
                             .results = 1,
                             .gradients = 2};
constexpr InPlaceOp kLayerNorm = {.plain = "aten::native_layer_norm",
                                  .plain_backward = "aten::native_layer_norm_backward",
                                  .by = "tempo::layer_norm",
                                  .by_backward = "tempo::layer_norm_backward",
                                  .results = 3,
                                  .gradients = 8};

// An op and the one in its backward function.
struct Pair {
  const InPlaceOp* op = nullptr;
  std::int32_t forward = -1, backward = -1;
  TensorRef mask = {};  // GELU's, once the forward op is written
};

Unexpected refuse_in_place(std::string message) {
  return fail(ErrorCode::kImpossible, "in-place: " + std::move(message));
}

bool all_tensors(std::span<const Argument> arguments, std::size_t count) {
  return arguments.size() >= count &&
         std::ranges::all_of(arguments.first(count), [](const Argument& argument) {
           return argument.kind == Argument::Kind::kTensor;
         });
}

Result<void> check_outside_of_checkpoints(const StepView& step, const InPlaceOp& op) {
  const ExecutionGraph& graph = step.graph();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!step.backward().in_backward[i] || graph.name(graph.nodes[i]) != op.plain) continue;
    return refuse_in_place(fmt::format(
        "expected {} outside of checkpoints, found one that is recomputed (node {}): in-place ops "
        "first, then checkpoints",
        op.plain, graph.nodes[i].id));
  }
  return {};
}

Result<std::vector<Pair>> find_pairs(const StepView& step, const InPlaceOp& op,
                                     FirstLayers layers) {
  if (auto good = check_outside_of_checkpoints(step, op); !good) return Unexpected{good.error()};
  const auto in_layers = nodes_of_layers(step, layers);
  if (!in_layers) return Unexpected{in_layers.error()};
  const ExecutionGraph& graph = step.graph();
  std::vector<Pair> pairs;
  for (const BackwardFunction& function : step.backward().functions) {
    const std::int32_t forward = function.forward;
    if (forward < 0 || !(*in_layers)[forward] || graph.name(forward) != op.plain) continue;
    if (!all_tensors(graph.outputs(forward), op.results)) continue;
    for (const std::int32_t child : graph.children(function.function)) {
      const auto inputs = graph.inputs(child);
      if (graph.name(child) != op.plain_backward || inputs.size() < op.gradients) continue;
      if (child < forward || !all_tensors(inputs, 2)) continue;
      pairs.push_back({.op = &op, .forward = forward, .backward = child});
    }
  }
  if (!pairs.empty()) return pairs;
  return refuse_in_place(
      fmt::format("expected {} and its backward function, found none", op.plain));
}

class InPlaceEdit {
 public:
  InPlaceEdit(const ExecutionGraph& graph, std::vector<Pair>& pairs)
      : graph_(graph), edit_(graph, dialect_of(graph)), builder_(edit_.builder()) {
    for (Pair& pair : pairs) {
      edit_.follow(pair.forward, [this, &pair] { change_forward(pair); });
      edit_.follow(pair.backward, [this, &pair] { change_backward(pair); });
      if (pair.op == &kLayerNorm) leave_mean_out(pair.forward);
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  // Leaves out the op that allocates the mean and the views of it.
  void leave_mean_out(std::int32_t norm) {
    const std::int64_t mean = graph_.tensors[graph_.outputs(norm)[1].index].storage_id;
    for (const std::int32_t child : graph_.children(norm)) {
      for_each_tensor(graph_, graph_.outputs(child), [&](const Tensor& tensor) {
        if (mean != 0 && tensor.storage_id == mean) edit_.replace(child);
      });
    }
  }

  // The node that was copied last calls another op.
  Node& call(std::string_view op) {
    Node& last = edit_.made().nodes.back();
    last.name = edit_.made().names.intern(op);
    last.op_schema = edit_.made().names.intern(schema_of(op));
    return last;
  }

  // Gives where they begin.
  std::uint32_t append(const std::vector<Argument>& arguments) {
    std::vector<Argument>& pool = edit_.made().arguments;
    pool.insert(pool.end(), arguments.begin(), arguments.end());
    return static_cast<std::uint32_t>(pool.size() - arguments.size());
  }

  void change_forward(Pair& pair) {
    const auto results = graph_.outputs(pair.forward);
    std::vector<Argument> kept = {results[0]};
    if (pair.op == &kGelu) {
      const TensorRef out = builder_.tensor_of_source(results[0].index);
      pair.mask = builder_.new_tensor(DType::kBool, builder_.device(out), builder_.shape(out));
      kept.push_back(builder_.tensor_argument(pair.mask));
    } else {
      kept.push_back(results[2]);
    }
    Node& node = call(pair.op->by);
    node.outputs_begin = append(kept);
    node.outputs_count = static_cast<std::uint32_t>(kept.size());
  }

  void change_backward(const Pair& pair) {
    const auto taken = graph_.inputs(pair.backward);
    const TensorRef result = builder_.tensor_of_source(graph_.outputs(pair.forward)[0].index);
    std::vector<Argument> read = {taken[0], builder_.tensor_argument(result)};
    if (pair.op == &kGelu) {
      read.push_back(builder_.tensor_argument(pair.mask));
      read.insert(read.end(), taken.begin() + 2, taken.end());
    } else {
      read.push_back(taken[2]);  // the normalised shape; the mean, after it, is gone
      read.insert(read.end(), taken.begin() + 4, taken.end());
    }
    Node& node = call(pair.op->by_backward);
    node.inputs_begin = append(read);
    node.inputs_count = static_cast<std::uint32_t>(read.size());
  }

  const ExecutionGraph& graph_;
  GraphEdit edit_;
  GraphBuilder& builder_;
};

}  // namespace

Result<ExecutionGraph> rewrite_in_place(const ExecutionGraph& source,
                                        const InPlaceOptions& options) {
  const StepView step(source);
  if (auto good = step.check("in-place", {.no_offload = true, .backward = true}); !good) {
    return Unexpected{good.error()};
  }
  std::vector<Pair> pairs;
  for (const auto& [op, layers] :
       {std::pair(&kGelu, options.gelu), std::pair(&kLayerNorm, options.layer_norm)}) {
    if (!layers) continue;
    PERFMODEL_TRY(found, find_pairs(step, *op, *layers));
    pairs.insert(pairs.end(), found->begin(), found->end());
  }
  return InPlaceEdit(step.graph(), pairs).write();
}

}  // namespace perfmodel
