#include "region.hpp"

#include "memory.hpp"

namespace perfmodel {

void begin_region(GraphBuilder& graph, std::string_view name) {
  if (!graph.pytorch().before(2, 0)) {
    graph.begin_label(name);
    return;
  }
  zeros(graph, graph.new_tensor(DType::kFloat32, graph.cpu(), {1}), from_python(false));
  graph.begin_label(name);
  const Shape bytes = {288};  // sizeof(at::RecordFunction) and its deleter
  allocate(graph, graph.new_tensor(DType::kUInt8, graph.cpu(), bytes), {.layout = false});
}

}  // namespace perfmodel
