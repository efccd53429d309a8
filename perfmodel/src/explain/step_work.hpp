#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Computations of one step, however long they take.
struct StepWork {
  /// Matrix products, convolutions, attention and recurrent layers, multiply-add as 2. Products
  /// that checkpoints and flash attention compute a second time count once, as in "model FLOP
  /// utilization" (Chowdhery et al., PaLM, 2022, appendix B). Ops without a rule count nothing.
  Flop products = {};
  /// The part of `products` that convolutions have. They are counted as direct sums; algorithms
  /// such as Winograd's do fewer operations.
  Flop convolutions = {};
  /// Dense peak of the GPU for the type that most of the products have; 0: no products.
  FlopPerSecond peak = {};
  std::string peak_name;  ///< "bf16 tensor cores"
  /// Tokens of one sample. Empty where the graph does not look up one row of a table per token of
  /// [batch, tokens], where such tensors disagree, or where no attention or recurrent layer
  /// follows.
  std::optional<std::int64_t> tokens;
};

/// `batch`: samples per step, empty if it is not known (then the tokens are not, either). `steps`:
/// of the graph, [first, last); empty: all. The work is their mean.
StepWork step_work(const ExecutionGraph& graph, const Gpu& gpu, std::optional<std::int64_t> batch,
                   const std::optional<std::pair<std::size_t, std::size_t>>& steps = {});

}  // namespace perfmodel
