#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// An op that launches one pointwise kernel on a GPU and nothing else: "aten::relu" with the
/// "aten::clamp_min" that it calls. Tensors by index in the graph.
struct PointwiseUnit {
  std::int32_t root = -1;  ///< the op with all below it
  std::string_view name;   ///< name of the primitive: "clamp_min"; "_to_copy" for casts
  std::int64_t sequence = -1;
  std::vector<std::uint32_t> inputs, outputs;  ///< the primitive's tensors; lists do not occur
};

/// None: the op does something else, or something more; its results have several shapes or are
/// smaller than its inputs; a tensor has no storage; its time was given by hand. `with_fills`: also
/// ops that write one number into all elements ("aten::full").
std::optional<PointwiseUnit> pointwise_unit(const ExecutionGraph& graph, std::int32_t root,
                                            bool with_fills = false);

/// Launches no kernel, nor do its inner ops: views, allocations, questions, and conversions that
/// gave their input.
bool launches_nothing(const ExecutionGraph& graph, std::int32_t node);

/// Holds ops and launches nothing itself: a label, a module, a part of autograd's engine.
bool is_region(const ExecutionGraph& graph, const Node& node);

}  // namespace perfmodel
