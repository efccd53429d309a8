#include "dialect.hpp"

#include "optimizer_reader.hpp"

namespace perfmodel {

PyTorch dialect_of(const ExecutionGraph& graph) {
  PyTorch pytorch;
  pytorch.device = {.kind = Device::Kind::kCpu, .index = -1};
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.on_gpu()) continue;
    pytorch.device = tensor.device;
    break;
  }
  bool before_2 = !graph.built && graph.schema.starts_with("1.0.1");
  for (std::int32_t label : optimizer_steps(graph)) {
    const auto step = read_optimizer_step(graph, label);
    if (!step) continue;
    before_2 = (before_2 && !step->is_2) || step->before_2;
  }
  if (before_2) {
    pytorch.major = 1;
    pytorch.minor = 13;
  }
  return pytorch;
}

}  // namespace perfmodel
