#include "tables_in_graph.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/predictors/detail/op_rules.hpp"
#include "step/backward_pass.hpp"
#include "step/step_view.hpp"

namespace perfmodel::sharding {
namespace {

struct Linear {
  std::int64_t in = 0, out = 0;
  DType dtype = DType::kFloat32;
};

struct GraphLayers {
  std::vector<Linear> linears;
  bool has_products = false;  ///< batched products of vectors
};

bool is_backward(const ExecutionGraph& graph, const Node& op) {
  return graph.find_around(op.parent, [&](std::int32_t at) {
    return is_evaluate_function(graph, graph.node(at));
  }) >= 0;
}

GraphLayers find_layers(const ExecutionGraph& graph) {
  GraphLayers found;
  const GraphIteration window = first_step(graph);
  for (std::int32_t i = window.begin; i < window.end; ++i) {
    const Node& op = graph.node(i);
    const std::string_view name = graph.name(op);
    if (name != "aten::linear" && name != "aten::bmm") continue;
    if (is_backward(graph, op)) continue;
    found.has_products = found.has_products || name == "aten::bmm";
    if (name == "aten::bmm") continue;
    const OpView view{graph, op};
    const Tensor* weight = view.tensor_input(1);
    if (!weight || weight->rank != 2) continue;
    const auto shape = view.shape(*weight);
    found.linears.push_back({.in = shape[1], .out = shape[0], .dtype = weight->dtype});
  }
  return found;
}

// How many layers from `first` on take each other's results.
std::size_t chain_from(const std::vector<Linear>& linears, std::size_t first) {
  std::size_t end = first;
  while (end < linears.size() && (end == first || linears[end].in == linears[end - 1].out)) ++end;
  return end - first;
}

bool is_cross(const std::vector<Linear>& linears, std::size_t at) {
  return at + 2 < linears.size() && linears[at].in == linears[at + 1].out &&
         linears[at].out == linears[at + 1].in && linears[at].out < linears[at].in;
}

std::string dtype_of(DType dtype) {
  return dtype == DType::kFloat16 ? "float16" : dtype == DType::kBFloat16 ? "bfloat16" : "float32";
}

// Why `layers` are no top MLP; empty if they are one.
std::string refuse_top(std::span<const Linear> layers) {
  if (layers.empty()) return "expected layers after the interaction, found none";
  for (std::size_t i = 1; i < layers.size(); ++i) {
    if (layers[i].in == layers[i - 1].out) continue;
    return fmt::format("expected a layer that takes {} columns, found one that takes {}",
                       layers[i - 1].out, layers[i].in);
  }
  if (layers.back().out == 1) return "";
  return fmt::format("expected a last layer with 1 column, found {}", layers.back().out);
}

// Why the tables have no dot products; empty if they may have them.
std::string refuse_products(const DensePart& dense, const std::vector<ShardedTable>& tables) {
  if (dense.interaction != DensePart::Interaction::kDot || tables.empty()) return "";
  const bool has_bottom = !dense.bottom_mlp.empty();
  const std::int64_t width = has_bottom ? dense.bottom_mlp.back() : tables.front().dim;
  for (const ShardedTable& table : tables) {
    if (table.dim == width) continue;
    return fmt::format("expected dot products of {} columns, found {} with {}", width, table.name,
                       table.dim);
  }
  return "";
}

}  // namespace

std::optional<DensePart> layers_in_graph(const ExecutionGraph& graph,
                                         const std::vector<ShardedTable>& tables,
                                         std::string& why) {
  const GraphLayers layers = find_layers(graph);
  const std::vector<Linear>& linears = layers.linears;
  if (linears.empty()) return std::nullopt;
  DensePart dense{.bottom_mlp = {}, .top_mlp = {}};
  dense.dtype = dtype_of(linears.front().dtype);
  std::size_t next = chain_from(linears, 0);
  if (next == linears.size()) next = 0;  // a top MLP alone
  for (std::size_t i = 0; i < next; ++i) {
    if (i == 0) dense.bottom_mlp.push_back(linears[i].in);
    dense.bottom_mlp.push_back(linears[i].out);
  }
  using Interaction = DensePart::Interaction;
  dense.interaction = layers.has_products ? Interaction::kDot : Interaction::kConcatenation;
  if (is_cross(linears, next)) {
    dense.interaction = Interaction::kLowRankCross;
    dense.cross_layers = 0;
    dense.cross_rank = linears[next].out;
    for (; is_cross(linears, next); next += 2) ++dense.cross_layers;
  }
  why = refuse_top(std::span(linears).subspan(next));
  if (why.empty()) why = refuse_products(dense, tables);
  if (!why.empty()) return std::nullopt;
  for (; next < linears.size(); ++next) dense.top_mlp.push_back(linears[next].out);
  return dense;
}

}  // namespace perfmodel::sharding
