#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_cells.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// All steps of one layer, in their order.
struct LayerOfCells {
  std::vector<const UnfusedCell*> cells;
  std::vector<const CellProduct*> inputs, states;  ///< their products of x and of h
};

/// Layers of one size on top of each other, whose inputs are all there before the first step.
struct StackOfLayers {
  std::vector<LayerOfCells> layers;
  std::int32_t sequence = -1;          ///< the op that takes the inputs of the steps apart
  std::int32_t joined = -1;            ///< the op that joins the results of the steps
  double dropout = 0;                  ///< between layers
  std::vector<std::size_t> functions;  ///< of the backward pass, in their order

  const UnfusedCell& first() const { return *layers.front().cells.front(); }
};

struct StacksOfLayers {
  std::vector<StackOfLayers> stacks;
  std::optional<Error> left;  ///< why the first layer that is in no stack is not
};

/// Steps that share both weights are a layer; layers that read a sequence or the layer below, whose
/// results one `aten::stack` joins, are stacks. Cells in no stack are left, unless all are: then
/// the reason is the error.
Result<StacksOfLayers> find_stacks_of_layers(const ExecutionGraph& graph,
                                             const UnfusedCells& found);

/// The first tensor at `position`; none: another argument.
std::optional<std::uint32_t> tensor_at(std::span<const Argument> arguments, std::size_t position);

/// Copies a graph with something else in the place of stacks of layers and of their backward pass.
/// Gone are the ops of the steps and those whose results they alone read: views of the sequence,
/// states of zeros.
class StackCopy {
 public:
  StackCopy(const ExecutionGraph& graph, const BackwardPass& pass, const UnfusedCells& found,
            std::vector<StackOfLayers> stacks);

  using Write = std::function<void(std::size_t stack)>;
  /// Calls `forward` and `backward` where the stack's ops and its functions were; the parent is
  /// open.
  Result<ExecutionGraph> write(const Write& forward, const Write& backward);

  const ExecutionGraph& source() const { return source_; }
  const std::vector<StackOfLayers>& stacks() const { return stacks_; }
  GraphBuilder& builder() { return builder_; }
  TensorRef tensor(std::uint32_t entry) { return builder_.tensor_of_source(entry); }
  bool is_gone(std::int32_t root) const { return gone_.contains(root); }

  /// Dimension of the steps in what the stack reads and in what it makes.
  std::int64_t input_dimension(const StackOfLayers& stack) const;
  std::int64_t output_dimension(const StackOfLayers& stack) const;

  /// The gradient that the stack takes; there is one wherever its functions go.
  std::optional<std::uint32_t> incoming(const StackOfLayers& stack) const;

  /// A gradient that the rest of the pass takes from the functions that are gone, sums included.
  struct Leaving {
    std::int32_t to = -1;      ///< function that takes it
    std::int32_t of = -1;      ///< op of the forward pass whose function made it
    std::uint32_t tensor = 0;  ///< of the source
    bool accumulates = false;  ///< `to` does, for a parameter
  };
  std::vector<Leaving> leaving(const StackOfLayers& stack) const;

 private:
  void leave_out(std::size_t index);
  bool found_cell(std::int32_t root) const;
  std::int32_t gone_above(std::int32_t index) const;
  bool belongs_to(const StackOfLayers& stack, std::int32_t root) const;
  Result<void> add_functions(std::size_t index);
  Result<void> check_gradients(const StackOfLayers& stack) const;
  const BackwardFunction& at(std::size_t function) const { return pass_.functions[function]; }

  const ExecutionGraph& source_;
  const BackwardPass& pass_;
  const UnfusedCells& found_;
  std::vector<StackOfLayers> stacks_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::set<std::int32_t> gone_;
  std::map<std::int32_t, std::size_t> forward_at_, backward_at_;  // node -> stack
};

/// Stacks written out layer after layer, with one pointwise kernel per cell and pass. `layout`:
/// that of states and gates. Errors: those of StackCopy::write().
Result<ExecutionGraph> write_fused_layers(const ExecutionGraph& graph, const BackwardPass& pass,
                                          const UnfusedCells& found,
                                          std::vector<StackOfLayers> stacks,
                                          RecurrentLayout layout);

/// The pointwise part of a plain cell, which no library fuses, as a generated kernel.
void write_generated(GraphBuilder& builder, const std::string& activation,
                     const std::vector<Value>& inputs, TensorRef made, std::int64_t sequence);

}  // namespace perfmodel
