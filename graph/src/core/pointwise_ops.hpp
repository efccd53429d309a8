#pragma once

#include <span>
#include <string_view>

namespace perfmodel {

/// An op that runs as one kernel over the elements of its result.
struct PointwiseOp {
  std::string_view name;      ///< "aten::add"
  double flop = 0;            ///< per output element; transcendental functions ~ 10-30 instructions
  bool has_in_place = false;  ///< there is an "aten::add_" too
  /// An element of the result needs the elements of the inputs at its own place alone, so that
  /// neighbours can run as one kernel. Not so for moves (flip, padding, halves of a GLU).
  bool fusible = true;
};

std::span<const PointwiseOp> pointwise_ops();

/// By name, in place or not; null: not pointwise.
const PointwiseOp* find_pointwise_op(std::string_view name);

}  // namespace perfmodel
