#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// A linear layer whose result is an addend of a cell's gates.
struct CellProduct {
  std::int32_t op = -1;
  const Version *input = nullptr, *weight = nullptr;
  const Version* bias = nullptr;  ///< null: none
};

/// The pointwise part of one step of a recurrent layer, as single ops: all between its products and
/// its new state.
struct UnfusedCell {
  enum class Kind { kLstm, kGru, kPlain } kind = Kind::kLstm;
  std::vector<std::int32_t> ops;      ///< in the forward pass, in their order
  const Version* x_gates = nullptr;   ///< [B, G H]
  const Version* h_gates = nullptr;   ///< null: one product made the sum of both
  const Version* state = nullptr;     ///< c of an LSTM, h of a GRU, before; null: plain
  const Version* hidden = nullptr;    ///< h'
  const Version* memory = nullptr;    ///< c' of an LSTM
  std::string_view activation;        ///< a plain cell's: "tanh", "relu"
  std::vector<CellProduct> products;  ///< with x and with h, in either order
};

/// Vectors of the hidden size among the gates.
constexpr std::int64_t gates_of(UnfusedCell::Kind kind) {
  return kind == UnfusedCell::Kind::kLstm ? 4 : kind == UnfusedCell::Kind::kGru ? 3 : 1;
}

struct UnfusedCells {
  std::vector<UnfusedCell> cells;
  std::string broken;  ///< the first op that keeps others from being a cell, in words
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
/// pattern; a projection after h' does not.
UnfusedCells find_unfused_cells(const StepView& step);

/// The same, with an error if there are none, or none on a GPU.
Result<UnfusedCells> unfused_cells_of(const StepView& step);

}  // namespace perfmodel
