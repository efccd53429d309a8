#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Inception-v3 (Szegedy et al., 2015) as torchvision has it.
struct InceptionConfig {
  std::string name = "inception_v3";
  std::int64_t classes = 1000;
  std::int64_t batch = 32;
  std::int64_t resolution = 299;  ///< of the square image, three colours
  /// The second classifier behind the last block of 768 channels; its loss counts 0.4.
  bool auxiliary = true;
  double dropout = 0.5;
  TrainingOptions training;
};

/// "inception_v3".
Result<InceptionConfig> inception_preset(std::string_view name);

/// One training step. Errors: sizes that are not positive, an image that is too small (75, with
/// the auxiliary classifier 299), a dropout outside [0, 1), 2^60 elements or more.
Result<ExecutionGraph> build_inception(const InceptionConfig& config);

}  // namespace perfmodel
