#include "perfmodel/graph/captured.hpp"

#include <algorithm>

namespace perfmodel {

bool is_to_retarget(const ExecutionGraph& graph) {
  return std::ranges::any_of(graph.tensors, &Tensor::on_meta);
}

void put_captured_first(std::vector<std::string>& warnings) {
  std::stable_partition(warnings.begin(), warnings.end(), [](const std::string& warning) {
    return warning.starts_with(kCapturedPrefix);
  });
}

}  // namespace perfmodel
