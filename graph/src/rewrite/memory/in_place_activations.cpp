#include <fmt/format.h>

#include <string_view>
#include <unordered_map>
#include <vector>

#include "first_layers.hpp"
#include "ops/schemas.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

struct InPlaceOp {
  std::string_view plain, plain_backward, by, by_backward;
  std::size_t results, gradients;  // of the plain op; of the plain backward op: arguments
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
};

Unexpected refuse_in_place(std::string message) {
  return fail(ErrorCode::kImpossible, "in-place: " + std::move(message));
}

bool all_tensors(std::span<const Argument> arguments, std::size_t count) {
  if (arguments.size() < count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (arguments[i].kind != Kind::kTensor) return false;
  }
  return true;
}

Result<void> check_outside_of_checkpoints(const ExecutionGraph& graph, const BackwardPass& pass,
                                          const InPlaceOp& op) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!pass.in_backward[i] || graph.name(graph.nodes[i]) != op.plain) continue;
    return refuse_in_place(fmt::format(
        "expected {} outside of checkpoints, found one that is recomputed (node {}): in-place ops "
        "first, then checkpoints",
        op.plain, graph.nodes[i].id));
  }
  return {};
}

// Ops of both passes belong together by autograd's number.
std::vector<Pair> find_pairs(const ExecutionGraph& graph, const BackwardPass& pass,
                             const InPlaceOp& op, const ChosenLayers& layers) {
  std::unordered_map<std::int64_t, std::int32_t> forward;
  std::vector<Pair> pairs;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const Node& node = graph.node(i);
    if (pass.in_backward[i] || node.seq_id < 0) continue;
    if (graph.name(node) != op.plain || !all_tensors(graph.outputs(node), op.results)) continue;
    forward[node.seq_id] = i;
  }
  for (const BackwardFunction& function : pass.functions) {
    const auto at = forward.find(function.sequence);
    if (at == forward.end() || !layers.has(at->second)) continue;
    for (std::int32_t child : graph.children(function.function)) {
      const Node& node = graph.node(child);
      const auto inputs = graph.inputs(node);
      if (graph.name(node) != op.plain_backward || inputs.size() < op.gradients) continue;
      if (child < at->second || !all_tensors(inputs, 2)) continue;
      pairs.push_back({.op = &op, .forward = at->second, .backward = child});
    }
  }
  return pairs;
}

class InPlaceWriter {
 public:
  InPlaceWriter(const ExecutionGraph& graph, const std::vector<Pair>& pairs)
      : graph_(graph), edit_(graph, dialect_of(graph)), builder_(edit_.builder()) {
    for (const Pair& pair : pairs) {
      edit_.follow(pair.forward, [this, &pair] { write_forward(pair); });
      edit_.follow(pair.backward, [this, &pair] { write_backward(pair); });
      if (pair.op == &kLayerNorm) leave_mean_out(pair.forward);
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  // What allocates it and what views it.
  void leave_mean_out(std::int32_t norm) {
    const std::int64_t mean = graph_.tensors[graph_.outputs(norm)[1].index].storage_id;
    for (std::int32_t child : graph_.children(norm)) {
      for_each_tensor(graph_, graph_.outputs(child), [&](const Tensor& tensor) {
        if (mean != 0 && tensor.storage_id == mean) edit_.replace(child);
      });
    }
  }

  Argument mention(std::uint32_t tensor) {
    return builder_.tensor_argument(builder_.tensor_of_source(tensor));
  }

  void rename(std::string_view op) {
    Node& last = builder_.graph_being_made().nodes.back();
    last.name = builder_.graph_being_made().names.intern(op);
    last.op_schema = builder_.graph_being_made().names.intern(schema_of(op));
  }

  // Gives where they stand.
  std::uint32_t write(const std::vector<Argument>& arguments) {
    std::vector<Argument>& pool = builder_.graph_being_made().arguments;
    pool.insert(pool.end(), arguments.begin(), arguments.end());
    return static_cast<std::uint32_t>(pool.size() - arguments.size());
  }

  void write_forward(const Pair& pair) {
    const auto results = graph_.outputs(pair.forward);
    std::vector<Argument> kept = {results[0]};
    if (pair.op == &kGelu) {
      const TensorRef out = builder_.tensor_of_source(results[0].index);
      const TensorRef mask =
          builder_.new_tensor(DType::kBool, builder_.device(out), builder_.shape(out));
      masks_[pair.forward] = mask;
      kept.push_back(builder_.tensor_argument(mask));
    } else {
      kept.push_back(results[2]);
    }
    rename(pair.op->by);
    Node& last = builder_.graph_being_made().nodes.back();
    last.outputs_begin = write(kept);
    last.outputs_count = static_cast<std::uint32_t>(kept.size());
  }

  void write_backward(const Pair& pair) {
    const auto taken = graph_.inputs(pair.backward);
    std::vector<Argument> read = {taken[0], mention(graph_.outputs(pair.forward)[0].index)};
    if (pair.op == &kGelu) {
      read.push_back(builder_.tensor_argument(masks_.at(pair.forward)));
      read.insert(read.end(), taken.begin() + 2, taken.end());
    } else {
      read.push_back(taken[2]);  // the normalised shape; the mean, behind it, is gone
      read.insert(read.end(), taken.begin() + 4, taken.end());
    }
    rename(pair.op->by_backward);
    Node& last = builder_.graph_being_made().nodes.back();
    last.inputs_begin = write(read);
    last.inputs_count = static_cast<std::uint32_t>(read.size());
  }

  const ExecutionGraph& graph_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  std::unordered_map<std::int32_t, TensorRef> masks_;  // by node of the forward op
};

}  // namespace

Result<ExecutionGraph> rewrite_in_place(const ExecutionGraph& source,
                                        const InPlaceOptions& options) {
  const StepView step(source);
  if (auto good = step.check("in-place", {.no_offload = true, .backward = true}); !good) {
    return Unexpected{good.error()};
  }
  const ExecutionGraph& graph = step.graph();
  const BackwardPass& pass = step.backward();
  std::vector<Pair> pairs;
  const auto add = [&](const InPlaceOp& op, std::optional<FirstLayers> wanted) -> Result<void> {
    if (!wanted) return {};
    if (auto outside = check_outside_of_checkpoints(graph, pass, op); !outside) return outside;
    const auto layers = chosen_layers(graph, pass, *wanted);
    if (!layers) return Unexpected{layers.error()};
    const std::vector<Pair> found = find_pairs(graph, pass, op, *layers);
    if (found.empty()) {
      return refuse_in_place(
          fmt::format("expected {} and its backward function, found none", op.plain));
    }
    pairs.insert(pairs.end(), found.begin(), found.end());
    return {};
  };
  if (auto good = add(kGelu, options.gelu); !good) return Unexpected{good.error()};
  if (auto good = add(kLayerNorm, options.layer_norm); !good) return Unexpected{good.error()};
  return InPlaceWriter(graph, pairs).write();
}

}  // namespace perfmodel
