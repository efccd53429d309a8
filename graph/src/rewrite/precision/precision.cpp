#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "autocast.hpp"
#include "half_model.hpp"
#include "narrow_products.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/offload_ops.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Precision = PrecisionOptions::Precision;

constexpr std::int32_t kDeepest = 1000;  // nodes below nodes; recordings have about 20

Unexpected refuse_precision(std::string message) {
  return fail(ErrorCode::kImpossible, "precision: " + std::move(message));
}

bool has_gpu_tensors(const ExecutionGraph& graph) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(),
                     [](const Tensor& tensor) { return tensor.on_gpu(); });
}

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

DType half_of(const ExecutionGraph& graph, const Node& product) {
  DType found = DType::kUnknown;
  for_each_tensor(graph, graph.inputs(product), [&](const Tensor& tensor) {
    if (is_half(tensor.dtype)) found = tensor.dtype;
  });
  return found;
}

bool has_half_products(const ExecutionGraph& graph) {
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return autocast_policy(graph.name(node), true) == AutocastPolicy::kLower &&
           half_of(graph, node) != DType::kUnknown;
  });
}

// As `model.to(half)` makes them: an optimizer changes weights of that type.
bool has_half_weights(const ExecutionGraph& graph, DType half) {
  for (const std::int32_t label : optimizer_steps(graph)) {
    const auto step = read_optimizer_step(graph, label);
    if (!step) continue;
    for (const ReadGroup& group : step->groups) {
      for (const ReadUpdate& update : group.updates) {
        const std::int64_t weight = update.weight >= 0 ? update.weight : update.parameter;
        if (graph.tensors[weight].dtype == half) return true;
      }
    }
  }
  return false;
}

// Autocast rewrites fp32 programs as users write them; what was rewritten before is no such.
Result<void> check_nodes(const ExecutionGraph& graph, bool on_gpu, bool takes_half) {
  std::vector<std::int32_t> depth(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string_view name = graph.name(node);
    if (node.parent >= 0) depth[i] = depth[node.parent] + 1;
    if (depth[i] > kDeepest) {
      return refuse_precision(
          fmt::format("expected at most {} nodes inside each other, found more at node "
                      "{} ({})",
                      kDeepest, node.id, name));
    }
    if (name.starts_with("CheckpointFunction")) {
      return refuse_precision(
          fmt::format("expected a graph without checkpoints, found {} (node {}): change "
                      "the precision first, then add checkpoints",
                      name, node.id));
    }
    if (name.starts_with(kOffloadOps)) {
      return refuse_precision(
          fmt::format("expected activations that stay on the GPU, found {} (node {}): change the "
                      "precision first, then offload",
                      name, node.id));
    }
    if (graph.names.text(node.kernel_backend) == "triton") {
      return refuse_precision(
          fmt::format("expected a graph without fused kernels, found {} (node {}): "
                      "change the precision first, then fuse",
                      name, node.id));
    }
    if (takes_half || autocast_policy(name, on_gpu) != AutocastPolicy::kLower) continue;
    const DType found = half_of(graph, node);
    if (found != DType::kUnknown) {
      return refuse_precision(
          fmt::format("expected an fp32 graph, found {} of {} tensors (node {})", name,
                      to_string(found), node.id));
    }
  }
  return {};
}

// The scaler stands around one backward pass and the step of an optimizer.
Result<void> check_scaler(const ExecutionGraph& graph, const BackwardPass& pass) {
  if (pass.functions.empty())
    return refuse_precision("expected a backward pass to scale, found none");
  const bool steps = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.is_label && graph.name(node).starts_with("Optimizer.step");
  });
  if (!steps)
    return refuse_precision("expected an Optimizer.step region for the scaler, found none");
  for (const BackwardFunction& function : pass.functions) {
    const Node& node = graph.node(function.function);
    bool sparse = false;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      sparse |= tensor.storage_id == 0 && tensor.dtype != DType::kUnknown;
    });
    if (function.accumulates() && sparse) {
      return refuse_precision(
          fmt::format("expected dense gradients for the scaler, found a sparse one at "
                      "node {}",
                      node.id));
    }
  }
  return {};
}

Result<ExecutionGraph> autocast(const ExecutionGraph& graph, DType half, bool grad_scaler) {
  const bool on_gpu = has_gpu_tensors(graph);
  if (!on_gpu && half == DType::kFloat16) {
    return refuse_precision(
        "expected tensors on a GPU, found none: autocast on CPUs knows bfloat16 only");
  }
  if (auto good = check_nodes(graph, on_gpu, false); !good) return Unexpected{good.error()};
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const BackwardPass pass = backward_pass(graph);
  if (grad_scaler) {
    if (auto good = check_scaler(graph, pass); !good) return Unexpected{good.error()};
  }
  const std::vector<bool> region = autocast_region(graph, pass, on_gpu);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (region[i] &&
        autocast_policy(graph.name(graph.nodes[i]), on_gpu) == AutocastPolicy::kLower) {
      return autocast_graph(graph, pass, half, on_gpu, grad_scaler);
    }
  }
  return refuse_precision(
      "expected ops that autocast runs in half precision (linear, mm, bmm, convolution, ...), "
      "found none in the forward pass");
}

Result<ExecutionGraph> with_master_weights(const ExecutionGraph& graph, DType half) {
  if (!has_gpu_tensors(graph)) {
    return refuse_precision("expected tensors on a GPU for master weights, found none");
  }
  const bool is_half_built = has_half_weights(graph, half);
  if (auto good = check_nodes(graph, true, is_half_built); !good) return Unexpected{good.error()};
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  return is_half_built ? with_fp32_copies(graph, half) : half_model(graph, half);
}

Result<ExecutionGraph> narrow(const ExecutionGraph& half, const NarrowRecipe& recipe) {
  if (auto good = check_nodes(half, true, true); !good) return Unexpected{good.error()};
  if (auto good = check_nesting(half); !good) return Unexpected{good.error()};
  auto made = narrow_products(half, backward_pass(half), recipe);
  if (made) return std::move(*made);
  return refuse_precision(
      "expected products of linear layers whose sizes are whole multiples of what the type asks "
      "for, found none in the forward pass");
}

Result<ExecutionGraph> lower_to(const ExecutionGraph& graph, const NarrowRecipe& recipe) {
  if (!has_gpu_tensors(graph)) {
    return refuse_precision("expected tensors on a GPU for types of 8 or 4 bits, found none");
  }
  if (has_half_products(graph)) return narrow(graph, recipe);
  const auto half = autocast(graph, DType::kBFloat16, false);
  return half ? narrow(*half, recipe) : half;
}

}  // namespace

Result<ExecutionGraph> rewrite_precision(const ExecutionGraph& graph,
                                         const PrecisionOptions& options) {
  if (auto good = check_graph(graph, "precision", {.nested = false, .one_pass = true}); !good) {
    return Unexpected{good.error()};
  }
  if (options.grad_scaler && options.precision != Precision::kFp16) {
    return refuse_precision("expected fp16 for a gradient scaler, found another precision");
  }
  if (options.master_weights) {
    const bool is_half =
        options.precision == Precision::kFp16 || options.precision == Precision::kBf16;
    if (!is_half || options.grad_scaler) {
      return refuse_precision("expected fp16 or bf16 for master weights, found another precision");
    }
    return with_master_weights(
        graph, options.precision == Precision::kFp16 ? DType::kFloat16 : DType::kBFloat16);
  }
  if (options.scaling == PrecisionOptions::Scaling::kNv16 && options.precision != Precision::kFp4) {
    return refuse_precision("expected 4 bits for scales of 16 numbers, found another precision");
  }
  switch (options.precision) {
    case Precision::kFp16:
      return autocast(graph, DType::kFloat16, options.grad_scaler);
    case Precision::kBf16:
      return autocast(graph, DType::kBFloat16, false);
    case Precision::kFp8:
      return lower_to(graph, {.dtype = DType::kFloat8, .scaling = options.scaling});
    case Precision::kFp4:
      return lower_to(graph,
                      {.dtype = DType::kFloat4, .scaling = PrecisionOptions::Scaling::kNv16});
    case Precision::kTf32:
      if (!has_gpu_tensors(graph)) {
        return refuse_precision("expected tensors on a GPU for TF32, found none");
      }
      break;
    case Precision::kFp32:
      break;
  }
  ExecutionGraph made = graph;
  made.allow_tf32 = options.precision == Precision::kTf32;
  return made;
}

}  // namespace perfmodel
