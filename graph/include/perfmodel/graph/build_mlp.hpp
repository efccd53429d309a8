#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A classifier of linear layers with ReLU in between, cross entropy as its loss.
struct MlpConfig {
  std::string name = "mlp";
  std::vector<std::int64_t> widths = {784, 512, 512, 10};  ///< features first, classes last
  std::int64_t batch = 64;
  bool relu_behind_last = false;  ///< ReLU behind the last layer too
  bool softmax = false;           ///< nn.Softmax in front of the loss
  TrainingOptions training;
};

/// "mnist", or "linear": the 21 layers of width 1,024, ReLU behind each, with a softmax of
/// param-bench's sample workload, batch 512.
Result<MlpConfig> mlp_preset(std::string_view name);

/// One training step. Errors: no layer, sizes that are not positive, 2^60 elements or more.
Result<ExecutionGraph> build_mlp(const MlpConfig& config);

}  // namespace perfmodel
