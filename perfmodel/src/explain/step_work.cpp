#include "step_work.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {
namespace {

bool is_product(KernelFamily family) {
  return family == KernelFamily::kGemm || family == KernelFamily::kConvolution ||
         family == KernelFamily::kAttention || family == KernelFamily::kRecurrent ||
         family == KernelFamily::kGroupedGemm || family == KernelFamily::kExperts ||
         family == KernelFamily::kLinearAttention;
}

// Flash attention's backward pass makes five products, one of them for the second time.
double needed_flop(const KernelWork& work) {
  const auto* shape = std::get_if<AttentionShape>(&work.shape);
  const bool again = shape && shape->method == AttentionShape::Method::kFlash &&
                     shape->pass == AttentionShape::Pass::kBackward;
  return again ? 0.8 * work.flop.value : work.flop.value;
}

// Backward functions of the ops inside of a checkpoint are below it, too, each in an
// evaluate_function of its own; ops there without one are forward work done again.
bool is_recomputed(const ExecutionGraph& graph, std::int32_t node) {
  const auto is_checkpoint = [&](std::int32_t i) {
    return graph.name(i) == "CheckpointFunctionBackward";
  };
  const std::int32_t function = graph.find_around(node, [&](std::int32_t i) {
    return is_checkpoint(i) || graph.name(i).starts_with("autograd::engine::evaluate_function");
  });
  return function >= 0 && is_checkpoint(function);
}

std::vector<GraphIteration> chosen_steps(
    const ExecutionGraph& graph, const std::optional<std::pair<std::size_t, std::size_t>>& steps) {
  std::vector<GraphIteration> all = iterations(graph);
  if (!steps) return all;
  const auto last = std::min(steps->second, all.size());
  const auto first = std::min(steps->first, last);
  return {all.begin() + static_cast<std::ptrdiff_t>(first),
          all.begin() + static_cast<std::ptrdiff_t>(last)};
}

using ProductKind = std::pair<DType, bool>;  // with matrix units

struct ProductFlop {
  std::map<ProductKind, double> by_kind;
  double convolutions = 0;
};

ProductFlop product_flop(const ExecutionGraph& graph, const Gpu& gpu,
                         const std::vector<GraphIteration>& steps) {
  ProductFlop flop;
  Lowering lowering(graph, gpu, nullptr);
  LoweredOp op;
  for (std::int32_t node : top_level_ops(graph)) {
    const auto holds = [node](const GraphIteration& s) { return s.begin <= node && node < s.end; };
    if (std::ranges::none_of(steps, holds)) continue;
    lowering.lower(node, op);
    for (const LoweredCall& call : op.calls) {
      if (call.work < 0) continue;
      const KernelWork& work = op.work[call.work];
      if (!is_product(work.family) || is_recomputed(graph, call.node)) continue;
      flop.by_kind[{work.dtype, work.matrix_units}] += needed_flop(work);
      if (work.family == KernelFamily::kConvolution) flop.convolutions += needed_flop(work);
    }
  }
  return flop;
}

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "fp64";
    case DType::kFloat16: return "fp16";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat8: return "fp8";
    case DType::kFloat4: return "fp4";
    case DType::kInt8:
    case DType::kUInt8: return "int8";
    default: return "fp32";
  }
}

// The value that Gpu::peak() takes for this kind of products.
std::string peak_name(const Gpu& gpu, const ProductKind& kind) {
  const Gpu::Peaks& peaks = gpu.peak_tflop_per_s;
  const auto [dtype, matrix_units] = kind;
  const double value = gpu.peak(dtype, matrix_units).value;
  const std::string units = gpu.vendor == "amd" ? " matrix cores" : " tensor cores";
  const auto is = [value](const std::optional<double>& peak) {
    return peak && *peak * 1e12 == value;
  };
  const std::array<std::pair<std::string_view, const std::optional<double>*>, 7> matrix = {
      {{"fp32", &peaks.fp32_matrix},
       {"tf32", &peaks.tf32_matrix},
       {"fp16", &peaks.fp16_matrix},
       {"bf16", &peaks.bf16_matrix},
       {"fp8", &peaks.fp8_matrix},
       {"fp4", &peaks.fp4_matrix},
       {"int8", &peaks.int8_matrix}}};
  if (matrix_units) {
    // The type's own units first: several types may have one peak.
    for (const bool own : {true, false}) {
      for (const auto& [name, peak] : matrix) {
        if ((name == type_name(dtype) || !own) && is(*peak)) return std::string(name) + units;
      }
    }
  }
  // Half types without a rate of their own are computed in fp32.
  return is(peaks.fp32) ? "fp32" : std::string(type_name(dtype));
}

bool mixes_tokens(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames = {
      "aten::_softmax", "aten::softmax",  "aten::lstm",       "aten::gru",
      "aten::rnn_tanh", "aten::rnn_relu", "aten::_cudnn_rnn", "aten::miopen_rnn"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         name.find("scaled_dot_product") != name.npos;
}

// The other size of all [batch, tokens] and [tokens, batch] indices of row lookups.
std::set<std::int64_t> looked_up(const ExecutionGraph& graph, std::int64_t batch) {
  std::set<std::int64_t> sizes;
  for (const Node& node : graph.nodes) {
    if (!is_row_lookup(graph.name(node))) continue;
    const auto inputs = graph.inputs(node);
    if (inputs.size() < 2 || inputs[1].kind != Argument::Kind::kTensor) continue;
    const auto shape = graph.shape(graph.tensors[inputs[1].index]);
    if (shape.size() != 2) continue;
    if (shape[0] == batch) {
      sizes.insert(shape[1]);
    } else if (shape[1] == batch) {
      sizes.insert(shape[0]);
    }
  }
  return sizes;
}

std::optional<std::int64_t> tokens_of_sample(const ExecutionGraph& graph, std::int64_t batch) {
  const std::set<std::int64_t> sizes = looked_up(graph, batch);
  if (sizes.size() != 1 || *sizes.begin() < 2) return std::nullopt;
  const auto mixes = [&](const Node& node) { return mixes_tokens(graph.name(node)); };
  return std::ranges::any_of(graph.nodes, mixes) ? std::optional(*sizes.begin()) : std::nullopt;
}

}  // namespace

StepWork step_work(const ExecutionGraph& graph, const Gpu& gpu, std::optional<std::int64_t> batch,
                   const std::optional<std::pair<std::size_t, std::size_t>>& steps) {
  StepWork made;
  if (batch) made.tokens = tokens_of_sample(graph, *batch / accumulated_passes(graph));
  const auto chosen = chosen_steps(graph, steps);
  const auto [flop, convolutions] = product_flop(graph, gpu, chosen);
  if (flop.empty()) return made;
  for (const auto& [kind, value] : flop) made.products.value += value;
  made.products.value /= static_cast<double>(chosen.size());
  made.convolutions.value = convolutions / static_cast<double>(chosen.size());
  const ProductKind most =
      std::ranges::max_element(flop, {}, [](const auto& entry) { return entry.second; })->first;
  made.peak = gpu.peak(most.first, most.second);
  made.peak_name = peak_name(gpu, most);
  return made;
}

}  // namespace perfmodel
