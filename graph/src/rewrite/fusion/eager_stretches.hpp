#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pointwise_unit.hpp"

namespace perfmodel {

/// An op of a stretch, or a backward function around the parts that follow it.
struct StretchPart {
  std::int32_t node = -1;
  std::optional<PointwiseUnit> unit = {};  ///< none: it launches nothing itself
  std::size_t end = 0;                     ///< the part after its own: functions have some inside
  bool is_function = false;
};

/// Ops on one thread, under one label, of which each launches one pointwise kernel or nothing.
using Stretch = std::vector<StretchPart>;

/// All of a graph, in the order of its ops. Any other op ends a stretch, and so do the end of a
/// label, an AccumulateGrad that keeps its gradient, and a backward function that is not part of
/// the stretch as a whole. Ops that only call others are looked into, if one of these at most is no
/// part of a stretch: a softmax with the cast in front of it.
std::vector<Stretch> eager_stretches(const ExecutionGraph& graph);

/// Launches nothing itself: the ops that it calls can be part of a stretch, and may replace it.
bool only_calls_others(const ExecutionGraph& graph, std::int32_t node);

}  // namespace perfmodel
