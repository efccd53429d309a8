#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// A linear layer whose result is an addend of a cell's gates. Tensors by index in the graph.
struct CellProduct {
  std::int32_t root = -1;
  std::uint32_t input = 0;
  std::int32_t input_root = -1;  ///< op that made the input, -1: from outside
  std::uint32_t weight = 0;
  std::optional<std::uint32_t> bias;
};

/// The pointwise part of one step of a recurrent layer, as single ops: what stands between its
/// products and its new state. Tensors by index in the graph.
struct UnfusedCell {
  enum class Kind { kLstm, kGru, kPlain } kind = Kind::kLstm;
  std::vector<std::int32_t> roots;                  ///< its ops in the forward pass, in their order
  std::uint32_t x_gates = 0;                        ///< [B, G H]
  std::optional<std::uint32_t> h_gates;             ///< none: one product made the sum of both
  std::optional<std::uint32_t> state;               ///< c of an LSTM, h of a GRU, before
  std::uint32_t hidden = 0;                         ///< h'
  std::optional<std::uint32_t> memory;              ///< c' of an LSTM
  std::int32_t hidden_root = -1, memory_root = -1;  ///< ops that make them
  std::int32_t h_gates_root = -1;                   ///< op that makes `h_gates`
  std::string activation;                           ///< of a plain cell: "tanh", "relu"
  std::vector<CellProduct> products;                ///< those of x and of h, in either order
  std::vector<std::size_t> functions;               ///< into BackwardPass::functions, as they ran
};

/// What an op of the forward pass reads of others, and who reads what it makes.
struct ForwardFlow {
  std::vector<std::int32_t> input_roots;  ///< by input, -1: from outside
  std::vector<std::int32_t> readers;      ///< of all its results, ascending
};

struct UnfusedCells {
  std::vector<UnfusedCell> cells;
  std::map<std::int32_t, ForwardFlow> flow;  ///< of all ops of the forward pass, by node
  std::string broken;  ///< what was nearly one, and which op is another than it takes
};

/// Recognises, whatever the order of operands and in place or not:
///
///   LSTM  c' = s(f) c + s(i) tanh(g);  h' = s(o) tanh(c')
///   GRU   n = tanh(x_n + s(x_r + h_r) h_n), z = s(x_z + h_z);
///         h' = n + z (h - n)  or  (1 - z) n + z h
///   RNN   h' = tanh(a + b) or relu(a + b), where a later product with the weight of a or b reads
///   h'
///
/// with gates that are pieces (chunk, split, slices) of one tensor, of two for a GRU, and nothing
/// in between that is read elsewhere. Layer norms on gates or memory, and other ops, break the
/// pattern; a projection behind h' does not.
UnfusedCells find_unfused_cells(const ExecutionGraph& graph, const BackwardPass& pass);

/// The same, with an error where there are none, or none on a GPU.
Result<UnfusedCells> unfused_cells_of(const ExecutionGraph& graph, const BackwardPass& pass);

/// Copies every node but those of `gone` and what lies below them; `replace` is called with each of
/// these (an index) at its place.
template <class Replace>
void copy_all_but(const ExecutionGraph& source, const std::set<std::int32_t>& gone, GraphCopy& copy,
                  Replace&& replace) {
  std::vector<bool> inside(source.nodes.size(), false);
  for (std::size_t i = 0; i < source.nodes.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const std::int32_t parent = source.nodes[i].parent;
    const bool below = parent >= 0 && inside[parent];
    inside[i] = below || gone.contains(index);
    if (!inside[i]) {
      copy.copy(index);
    } else if (!below) {
      replace(index);
    }
  }
}

}  // namespace perfmodel
