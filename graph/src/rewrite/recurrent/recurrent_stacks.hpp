#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_cells.hpp"
#include "rewrite/graph_edit.hpp"

namespace perfmodel {

/// All steps of one layer, in their order.
struct LayerOfCells {
  std::vector<const UnfusedCell*> cells;
  std::vector<const CellProduct*> inputs, states;  ///< their products of x and of h
  std::set<std::int32_t> ops;  ///< cells, products, and the dropouts in front of upper layers
};

/// Layers of one size on top of each other, whose inputs are all there before the first step.
/// Tensors by index in the graph.
struct StackOfLayers {
  std::vector<LayerOfCells> layers;
  double dropout = 0;                   ///< between layers
  std::int32_t sequence = -1;           ///< the op that takes the inputs of the steps apart
  std::int32_t joined = -1;             ///< the op that joins the results of the steps
  std::uint32_t input = 0, output = 0;  ///< over all steps
  std::int64_t input_dimension = 0, output_dimension = 0;  ///< along which the steps go there

  /// A gradient that functions outside take, with those that were added before.
  struct Gradient {
    std::int32_t op = -1;  ///< op of the forward pass whose function makes it
    std::uint32_t tensor = 0;
    bool of_parameter = false;
  };
  bool has_backward = false;
  std::int32_t first_function = -1, last_function = -1;  ///< nodes: where the parent is, the place
  std::uint32_t incoming = 0;                            ///< the gradient of `output`
  std::vector<Gradient> outgoing;

  const UnfusedCell& first() const { return *layers.front().cells.front(); }
};

struct StacksOfLayers {
  std::vector<StackOfLayers> stacks;
  /// Ops and functions that the stacks are, and ops whose results they alone read: views of the
  /// sequence, states of zeros.
  std::set<std::int32_t> nodes;
  std::optional<Error> left;  ///< why the first layer that is in no stack is not
};

/// Steps that share both weights are a layer; layers that read a sequence or the layer below, whose
/// results one `aten::stack` joins, are stacks. Cells in no stack are left, unless all are: then
/// the reason is the error.
Result<StacksOfLayers> find_stacks_of_layers(const StepView& step, const UnfusedCells& found);

/// Writes the graph with others in place of stacks, by index: `forward` and `backward` are called
/// where their ops and functions were; the parent is open.
ExecutionGraph write_in_place_of(const StacksOfLayers& found, GraphEdit& edit,
                                 const std::function<void(std::size_t)>& forward,
                                 const std::function<void(std::size_t)>& backward);

/// Stacks written out layer after layer, with one pointwise kernel per cell and pass.
ExecutionGraph write_fused_layers(const StepView& step, const StacksOfLayers& found,
                                  RecurrentLayout layout);

/// The pointwise part of a plain cell, which no library fuses, as a generated kernel.
void write_generated(GraphBuilder& builder, std::string_view activation,
                     const std::vector<Value>& inputs, TensorRef made, std::int64_t sequence);

}  // namespace perfmodel
