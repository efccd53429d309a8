#pragma once

#include <cstdint>
#include <optional>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The product of matrices [batch, m, k] and [batch, k, n] that a Triton template computes, among
/// other things ("triton_tem_fused_addmm_gelu_0").
struct TemplateProduct {
  const Tensor *left = nullptr, *right = nullptr, *result = nullptr;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
};

/// The first two neighbouring tensors of as many dimensions that multiply to the size of the
/// result: the first output, or the last argument if no outputs are recorded. Nothing: the node is
/// no such kernel, or no two tensors fit.
std::optional<TemplateProduct> template_product(const ExecutionGraph& graph, const Node& node);

}  // namespace perfmodel
