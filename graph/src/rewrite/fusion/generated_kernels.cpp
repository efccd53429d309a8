#include "generated_kernels.hpp"

#include <fmt/format.h>

namespace perfmodel {
namespace {

std::string signature(const ExecutionGraph& graph, const GeneratedKernel& kernel) {
  std::string text = fmt::format("{} {}", kernel.name, fmt::join(kernel.sizes, " "));
  for (const auto* arguments : {&kernel.reads, &kernel.writes}) {
    for (const Argument& one : *arguments) {
      const Tensor& tensor = graph.tensors[one.index];
      text += fmt::format(" {}{}", to_string(tensor.dtype), tensor.numel);
    }
    text += " ->";
  }
  return text;
}

}  // namespace

void GeneratedKernels::write(GraphBuilder& builder, const GeneratedKernel& kernel) {
  ExecutionGraph& graph = builder.graph_being_made();
  const auto number = numbers_.try_emplace(signature(graph, kernel), numbers_.size()).first->second;
  builder.begin_plain(fmt::format("{}_{}", kernel.name, number), {}, kernel.sequence);
  Node& node = graph.nodes[builder.innermost()];
  node.kernel_backend = graph.names.intern("triton");
  std::vector<Argument>& pool = graph.arguments;
  node.inputs_begin = static_cast<std::uint32_t>(pool.size());
  pool.insert(pool.end(), kernel.reads.begin(), kernel.reads.end());
  for (const std::int64_t size : kernel.sizes) {
    pool.push_back({.kind = Argument::Kind::kInt, .integer = size});
  }
  node.inputs_count = static_cast<std::uint32_t>(pool.size()) - node.inputs_begin;
  node.outputs_begin = static_cast<std::uint32_t>(pool.size());
  pool.insert(pool.end(), kernel.writes.begin(), kernel.writes.end());
  node.outputs_count = static_cast<std::uint32_t>(kernel.writes.size());
  builder.close();
}

}  // namespace perfmodel
