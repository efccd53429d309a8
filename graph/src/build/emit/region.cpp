#include "region.hpp"

#include "memory.hpp"

namespace perfmodel {

void begin_region(GraphBuilder& graph, std::string_view name) {
  if (!graph.pytorch().before(2, 0)) {
    graph.begin_label(name);
    return;
  }
  const Value cpu = GraphBuilder::device_value(GraphBuilder::cpu());
  const TensorRef one = graph.new_tensor(DType::kFloat32, graph.cpu(), {1});
  graph.begin_op("aten::zeros", {Shape{1}, kNone, kNone, cpu, false});
  graph.leaf_op("aten::empty.memory_format", {Shape{1}, kNone, kNone, cpu, false, kNone}, {one});
  zero(graph, one);
  graph.end_op({one});
  graph.begin_label(name);
  const Shape bytes = {288};  // sizeof(at::RecordFunction) and its deleter
  graph.leaf_op("aten::empty.memory_format",
                {bytes, scalar_type_code(DType::kUInt8), kNone, cpu, kNone, kNone},
                {graph.new_tensor(DType::kUInt8, graph.cpu(), bytes)});
}

}  // namespace perfmodel
