#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

struct AutocastOptions {
  DType half = DType::kFloat16;  ///< or kBFloat16
  bool on_gpu = true;
};

/// A tensor of the source as it will be: itself in some type, or the result of a cast.
struct RetypedTensor {
  DType dtype = DType::kUnknown;  ///< kUnknown: the mention stays as it is
  std::int32_t cast = -1;         ///< into AutocastPlan::casts, -1: itself
  std::int32_t storage = -1;      ///< the same for its storage: a view of a cast shares the cast's
};

/// A tensor of the source that an op or a backward function takes as another one.
struct ReplacedTensor {
  const Tensor* tensor = nullptr;
  RetypedTensor by = {};
  std::int64_t producer = -1;  ///< number of the op that made it, -1: a parameter
};

struct PlannedCast {
  const Tensor* tensor = nullptr;
  RetypedTensor from = {};        ///< the tensor as it is by then
  DType dtype = DType::kFloat32;  ///< type of the result
  bool by_options = false;        ///< called with all options, as toType() does, not to(dtype)
  std::int64_t sequence = -1;     ///< autograd's number
  bool is_recorded = false;       ///< autograd sees it, so it has a backward function
};

struct PlannedOp {
  bool is_wrapped = false;  ///< autocast's kernel calls it, with the casts between the two
  bool gives_fp32 = false;  ///< from half arguments, by an argument that names the type
  std::vector<ReplacedTensor> casts = {};  ///< casts arguments; ops share the casts of parameters
  std::int64_t sequence = -1;              ///< -1: the op keeps its own
  /// An argument that names a type, by its position.
  std::optional<std::pair<std::size_t, Argument>> type_argument = {};
};

/// A node, a node and all below it, a cast that the engine writes inside node `at`, or the backward
/// function of a cast next to function `at`.
struct PlannedStep {
  enum class Kind { kNode, kTree, kCast, kCastFunction } kind = Kind::kTree;
  std::int32_t at = -1;
  std::int32_t cast = -1;
  std::int32_t sum = -1;  ///< op that adds the gradient to one that came before
};

/// A training step under autocast. Casts that autograd sees have their ToCopyBackward0,
/// gradients are summed before it, and where a gradient has another type than the next function
/// expects, the engine casts it.
struct AutocastPlan {
  explicit AutocastPlan(const ExecutionGraph& graph)
      : mentions(graph.tensors.size()), ops(graph.nodes.size()) {}

  std::vector<RetypedTensor> mentions;  ///< by index in ExecutionGraph::tensors
  std::vector<PlannedOp> ops;           ///< by node
  std::vector<PlannedCast> casts;
  std::vector<PlannedStep> steps;  ///< in the order in which they run
};

/// Index of a mention, into ExecutionGraph::tensors.
inline std::ptrdiff_t mention_index(const ExecutionGraph& graph, const Tensor& tensor) {
  return &tensor - graph.tensors.data();
}

}  // namespace perfmodel
