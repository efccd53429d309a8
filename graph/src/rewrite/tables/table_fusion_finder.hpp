#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// One nn.EmbeddingBag of a step; tensors by index in the graph.
struct FusibleBag {
  std::int32_t node = -1;
  std::int64_t sequence = -1;
  std::uint32_t weight = 0, indices = 0, offsets = 0, vector = 0;
};

/// Indices or offsets that come from outside of the step, so that the program that loads them may
/// as well join the lists of all tables.
struct LoadedInput {
  std::int32_t copy = -1;  ///< the first from the host; -1: they were on the GPU before
  bool pinned = false;
};

/// The bags of one step that become one lookup, and the nodes removed with them, by index.
struct TableFusion {
  std::vector<FusibleBag> bags;
  std::int64_t batch = 0;
  std::optional<LoadedInput> indices, offsets;  ///< none: computed in the step, joined on the GPU

  std::int32_t cat = -1;
  std::size_t first_input = 0;    ///< the cat's first input that is a vector
  std::int64_t first_column = 0;  ///< the first column of the cat's result that belongs to a vector

  std::int32_t cat_function = -1;    ///< backward function of the cat; -1: forward alone
  std::int32_t first_narrow = -1;    ///< first of its pieces that are gradients of vectors
  std::int32_t first_function = -1;  ///< first of the bags' backward functions

  std::optional<ReadStep> step;  ///< without the tables
  double learning_rate = 0.01;   ///< for the tables

  /// Nodes that go, with everything below them: bags, copies and views of their inputs, their
  /// backward functions and gradients.
  std::vector<std::int32_t> left_out;
};

/// Finds the bags of a step. Fewer than two are returned as they are; for more, everything else is
/// filled in or the reason why they cannot be one lookup is returned.
Result<TableFusion> find_table_fusion(const StepView& step, const GraphIteration& range);

/// An error of this rewrite.
Unexpected refuse_table_fusion(std::string message);

}  // namespace perfmodel
