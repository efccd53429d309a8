#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "number.hpp"

namespace perfmodel::resize {

/// One dimension of a tensor as a function of the size X that changes:
///   a * X^power + offset, with a from the size that was recorded.
/// [B * S, H] has power 1 in B and in S, [B * T + 1] power 1 and offset 1, S x S scores power 1
/// each.
struct Dim {
  std::int64_t size = 1;
  int power = 0;
  std::int64_t offset = 0;
  /// It is open whether this size changes; it counts as constant until an op decides. -1: known.
  std::int32_t hole = -1;
  std::int64_t hole_add = 0;      ///< this size - the hole's size
  std::vector<Dim> factors = {};  ///< dimensions merged into it, outermost first

  bool scales() const { return power != 0; }
  bool same_form(const Dim& other) const { return power == other.power && offset == other.offset; }
};
using Dims = std::vector<Dim>;

/// A dimension that does not change.
inline Dim constant(std::int64_t size) { return {.size = size}; }

/// A number before and after.
struct Change {
  std::int64_t was = 0;
  Number now = 0;
};

/// A dimension that a squeeze leaves after the change.
struct Left {
  Number size, stride;
};

/// Dimensions of a tensor and where they lie in its storage.
struct Layout {
  Dims dims;
  std::vector<Change> strides = {};   ///< elements
  Change offset = {};                 ///< elements
  std::optional<Dim> non_zeros = {};  ///< set if the tensor is sparse
  /// Of a squeeze that now drops other dimensions than it did.
  std::optional<std::vector<Left>> squeezed = {};
  std::int32_t external = -1;  ///< the tensor of the outside that it is, or is a view of

  bool scales() const {
    for (const Dim& dim : dims) {
      if (dim.scales()) return true;
    }
    return non_zeros && non_zeros->scales();
  }
};

}  // namespace perfmodel::resize
