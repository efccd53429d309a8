#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "autocast.hpp"
#include "grad_scaler.hpp"
#include "half_model.hpp"
#include "narrow_products.hpp"
#include "native_batch_norms.hpp"
#include "ops/catalogue.hpp"
#include "recorded_precision.hpp"
#include "step/nesting.hpp"
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

// Autocast rewrites fp32 programs as users write them, not programs that another rewrite has
// changed.
Result<void> check_nodes(const ExecutionGraph& graph, bool on_gpu, bool takes_half) {
  std::vector<std::int32_t> depth(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string_view name = graph.name(node);
    if (node.parent >= 0) depth[i] = depth[node.parent] + 1;
    if (depth[i] > kDeepest) {
      return refuse_precision(
          fmt::format("expected at most {} nodes inside each other, found more at node {} ({})",
                      kDeepest, node.id, name));
    }
    const auto refuse_node = [&](std::string_view expected, std::string_view other) {
      return refuse_precision(
          fmt::format("expected {}, found {} (node {}): change the precision first, then {}",
                      expected, name, node.id, other));
    };
    if (name.starts_with("CheckpointFunction")) {
      return refuse_node("a graph without checkpoints", "add checkpoints");
    }
    if (name.starts_with(kOffloadOps)) {
      return refuse_node("activations that stay on the GPU", "offload");
    }
    if (graph.names.text(node.kernel_backend) == "triton") {
      return refuse_node("a graph without fused kernels", "fuse");
    }
    if (takes_half || autocast_policy(name, on_gpu) != AutocastPolicy::kLower) continue;
    const DType found = half_of(graph, node);
    if (found != DType::kUnknown) {
      return refuse_precision(
          fmt::format("expected an fp32 graph, found {} of {} tensors (node {})", name,
                      to_string(found), node.id));
    }
  }
  return check_nesting(graph);
}

// Autocast follows a tensor from the op that gives it: whoever takes it must name the same type.
Result<void> check_types(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<DType> given(step.tensors(), DType::kUnknown);
  for (const Node& node : graph.nodes) {
    const Tensor* other = nullptr;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      const bool is_number = tensor.rank == 0 && !tensor.on_gpu();  // no op gives it; reused ids
      if (!is_number && given[tensor] == DType::kFloat32 && tensor.dtype != DType::kFloat32) {
        other = &tensor;
      }
    });
    if (other != nullptr) {
      return refuse_precision(
          fmt::format("expected tensor {} as fp32, as it was given, found {} of {} (node {})",
                      other->id, graph.name(node), to_string(other->dtype), node.id));
    }
    for_each_tensor(graph, graph.outputs(node),
                    [&](const Tensor& tensor) { given[tensor] = tensor.dtype; });
  }
  return {};
}

// The scaler wraps one backward pass and the step of an optimizer.
Result<void> check_scaler(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  if (step.backward().functions.empty()) {
    return refuse_precision("expected a backward pass to scale, found none");
  }
  if (optimizer_steps(graph).empty()) {
    return refuse_precision("expected an Optimizer.step region for the scaler, found none");
  }
  for (const BackwardFunction& function : step.backward().functions) {
    bool sparse = false;
    for_each_tensor(graph, graph.inputs(function.function), [&](const Tensor& tensor) {
      sparse |= tensor.storage_id == 0 && tensor.dtype != DType::kUnknown;
    });
    if (!function.accumulates() || !sparse) continue;
    return refuse_precision(
        fmt::format("expected dense gradients for the scaler, found a sparse one at node {}",
                    graph.node(function.function).id));
  }
  return {};
}

Result<ExecutionGraph> autocast(const StepView& step, DType half, bool grad_scaler) {
  const ExecutionGraph& graph = step.graph();
  const bool on_gpu = has_gpu_tensors(graph);
  if (!on_gpu && half == DType::kFloat16) {
    return refuse_precision(
        "expected tensors on a GPU, found none: autocast on CPUs knows bfloat16 only");
  }
  auto good = check_nodes(graph, on_gpu, false);
  if (good) good = check_types(step);
  if (good && grad_scaler) good = check_scaler(step);
  if (!good) return Unexpected{good.error()};
  const std::vector<bool> region = autocast_region(graph, step.backward(), on_gpu);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    if (region[i] && autocast_policy(graph.name(i), on_gpu) == AutocastPolicy::kLower) {
      ExecutionGraph made =
          with_native_batch_norms(autocast_graph(step, region, {.half = half, .on_gpu = on_gpu}));
      return grad_scaler ? with_grad_scaler(StepView(made)) : std::move(made);
    }
  }
  return refuse_precision(
      "expected ops that autocast runs in half precision (linear, mm, bmm, convolution, ...), "
      "found none in the forward pass");
}

Result<ExecutionGraph> with_master_weights(const StepView& step, DType half) {
  if (!has_gpu_tensors(step.graph())) {
    return refuse_precision("expected tensors on a GPU for master weights, found none");
  }
  const bool is_half_built = has_half_weights(step, half);
  if (auto good = check_nodes(step.graph(), true, is_half_built); !good) {
    return Unexpected{good.error()};
  }
  auto made = is_half_built ? with_fp32_copies(step, half) : half_model(step, half);
  if (!made) return made;
  return with_native_batch_norms(*made);
}

Result<ExecutionGraph> narrow(const StepView& half, PrecisionOptions::Scaling scaling) {
  if (auto good = check_nodes(half.graph(), true, true); !good) return Unexpected{good.error()};
  if (auto made = narrow_products(half, scaling)) return std::move(*made);
  return refuse_precision(
      "expected products of linear layers whose sizes are whole multiples of what the type asks "
      "for, found none in the forward pass");
}

Result<ExecutionGraph> lower_to(const StepView& step, PrecisionOptions::Scaling scaling) {
  if (!has_gpu_tensors(step.graph())) {
    return refuse_precision("expected tensors on a GPU for types of 8 or 4 bits, found none");
  }
  if (has_half_products(step.graph())) return narrow(step, scaling);
  const auto half = autocast(step, DType::kBFloat16, false);
  return half ? narrow(StepView(*half), scaling) : half;
}

// The last argument of convolutions by cuDNN says whether torch.backends.cudnn.allow_tf32 is on.
// Gradients have no such argument: they do as the first convolution does.
void allow_tf32_of_convolutions(ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (node.inputs_count == 0 ||
        (name != "aten::cudnn_convolution" && name != "aten::_convolution" &&
         name != "aten::cudnn_convolution_transpose")) {
      continue;
    }
    Argument& last = graph.arguments[node.inputs_begin + node.inputs_count - 1];
    if (last.kind == Argument::Kind::kBool) last.integer = 1;
  }
}

}  // namespace

Result<ExecutionGraph> rewrite_precision(const ExecutionGraph& graph,
                                         const PrecisionOptions& options) {
  const StepView step(graph);
  if (auto good = step.check("precision", {.nested = false, .eager = true, .one_pass = true});
      !good) {
    return Unexpected{good.error()};
  }
  if (options.grad_scaler && options.precision != Precision::kFp16) {
    return refuse_precision("expected fp16 for a gradient scaler, found another precision");
  }
  const bool is_fp16 = options.precision == Precision::kFp16;
  const DType half = is_fp16 ? DType::kFloat16 : DType::kBFloat16;
  if (options.master_weights) {
    if ((!is_fp16 && options.precision != Precision::kBf16) || options.grad_scaler) {
      return refuse_precision("expected fp16 or bf16 for master weights, found another precision");
    }
    return with_master_weights(step, half);
  }
  if (options.scaling == PrecisionOptions::Scaling::kNv16 && options.precision != Precision::kFp4) {
    return refuse_precision("expected 4 bits for scales of 16 numbers, found another precision");
  }
  switch (options.precision) {
    case Precision::kFp16:
    case Precision::kBf16: return autocast(step, half, options.grad_scaler);
    case Precision::kFp8: return lower_to(step, options.scaling);
    case Precision::kFp4: return lower_to(step, PrecisionOptions::Scaling::kNv16);
    case Precision::kTf32:
      if (!has_gpu_tensors(graph)) {
        return refuse_precision("expected tensors on a GPU for TF32, found none");
      }
      break;
    case Precision::kFp32: break;
  }
  ExecutionGraph made = graph;
  made.allow_tf32 = options.precision == Precision::kTf32;
  if (made.allow_tf32) allow_tf32_of_convolutions(made);
  return made;
}

}  // namespace perfmodel
