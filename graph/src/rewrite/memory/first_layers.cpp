#include "first_layers.hpp"

#include <algorithm>

#include "checkpoint_segments.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {

bool ChosenLayers::has(std::int32_t node) const {
  return all_ || std::any_of(layers_.begin(), layers_.end(), [node](const Range& layer) {
           return layer.begin <= node && node < layer.end;
         });
}

Result<ChosenLayers> chosen_layers(const ExecutionGraph& graph, const BackwardPass& pass,
                                   FirstLayers layers) {
  ChosenLayers chosen;
  if (!layers.count) return chosen;
  const auto segments = checkpoint_segments(graph, pass, {.layers = layers.count});
  if (!segments) return Unexpected{segments.error()};
  chosen.all_ = false;
  for (const Segment& segment : *segments) {
    chosen.layers_.push_back(
        {.begin = segment.trees.front(), .end = last_below(graph, segment.trees.back()) + 1});
  }
  return chosen;
}

}  // namespace perfmodel
