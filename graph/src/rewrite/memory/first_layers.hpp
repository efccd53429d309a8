#pragma once

#include <vector>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// Nodes of the layers that a rewrite is for.
class ChosenLayers {
 public:
  bool has(std::int32_t node) const;

 private:
  friend Result<ChosenLayers> chosen_layers(const ExecutionGraph&, const BackwardPass&,
                                            FirstLayers);
  struct Range {
    std::int32_t begin = 0, end = 0;
  };
  bool all_ = true;
  std::vector<Range> layers_;
};

Result<ChosenLayers> chosen_layers(const ExecutionGraph& graph, const BackwardPass& pass,
                                   FirstLayers layers);

}  // namespace perfmodel
