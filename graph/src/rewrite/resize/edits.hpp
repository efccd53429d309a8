#pragma once

#include <cstdint>
#include <vector>

#include "number.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel::resize {

/// The changes that another size makes in a graph: places in its pools and their new values.
/// `Integer` and `Float` are the new numbers, or say how to get them. If one place is edited
/// several times, the last edit holds; the kinds are made in this order.
template <class Integer, class Float>
struct EditsOf {
  struct Place {
    std::uint32_t at = 0;
    Integer value;
  };
  struct FloatPlace {
    std::uint32_t at = 0;
    Float value;
  };
  struct Shape {  ///< a tensor gets another rank: sizes of its own at the end of the pool
    std::uint32_t tensor = 0;
    std::vector<Integer> sizes;
  };
  struct List {  ///< an argument gets a list of its own: `values`, repeated up to `length`
    std::uint32_t at = 0;
    Integer length;
    std::vector<Integer> values;
  };

  std::vector<Place> sizes;       ///< shape_pool
  std::vector<Place> numels;      ///< tensors
  std::vector<Place> offsets;     ///< tensors
  std::vector<Shape> shapes;      ///< tensors
  std::vector<Place> integers;    ///< arguments; `real` too where the number is another one
  std::vector<List> lists;        ///< arguments
  std::vector<FloatPlace> reals;  ///< arguments
};
using Edits = EditsOf<Number, Real>;

/// The splits in the record of a collective are those among its arguments.
void renew_splits(ExecutionGraph& graph, const Node& node);

/// Makes edits in a copy of `graph`, renew_splits() not included. `value_of`: Integer and Float to
/// their numbers.
template <class Integer, class Float, class ValueOf>
void make_edits(const EditsOf<Integer, Float>& edits, const ExecutionGraph& graph,
                ExecutionGraph& copy, ValueOf&& value_of) {
  for (const auto& [at, value] : edits.sizes) copy.shape_pool[at] = value_of(value);
  for (const auto& [at, value] : edits.numels) copy.tensors[at].numel = value_of(value);
  for (const auto& [at, value] : edits.offsets) copy.tensors[at].offset = value_of(value);
  for (const auto& [at, sizes] : edits.shapes) {
    Tensor& tensor = copy.tensors[at];
    tensor.shape_begin = static_cast<std::uint32_t>(copy.shape_pool.size());
    tensor.rank = static_cast<std::uint16_t>(sizes.size());
    tensor.numel = 1;
    for (const auto& size : sizes) {
      copy.shape_pool.push_back(value_of(size));
      tensor.numel = multiplied(tensor.numel, value_of(size));
    }
  }
  for (const auto& [at, value] : edits.integers) {
    const std::int64_t integer = value_of(value);
    const Argument& original = graph.arguments[at];
    const bool other = integer != original.integer;
    copy.arguments[at].integer = integer;
    copy.arguments[at].real = other ? static_cast<double>(integer) : original.real;
  }
  for (const auto& [at, length, values] : edits.lists) {
    const auto count = static_cast<std::uint32_t>(value_of(length));
    copy.arguments[at].index = static_cast<std::uint32_t>(copy.arguments.size());
    copy.arguments[at].count = count;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t integer = value_of(values[i % values.size()]);
      copy.arguments.push_back(
          {.kind = Argument::Kind::kInt, .integer = integer, .real = static_cast<double>(integer)});
    }
  }
  for (const auto& [at, value] : edits.reals) copy.arguments[at].real = value_of(value);
}

/// A copy with the new numbers.
ExecutionGraph edited(const ExecutionGraph& graph, const Edits& edits);

}  // namespace perfmodel::resize
