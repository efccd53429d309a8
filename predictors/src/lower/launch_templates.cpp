#include "perfmodel/predictors/detail/launch_templates.hpp"

#include "base/enum_name.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"

namespace perfmodel {
namespace {

std::uint64_t device_code(const Tensor& tensor) {
  return tensor.storage_id == 0 && tensor.numel == 0
             ? 7
             : static_cast<std::uint64_t>(tensor.device.kind);
}

// A run of equal devices counts once, so that `cat` of 26 or 27 tensors is one key.
void mix_devices(const ExecutionGraph& graph, std::span<const Argument> arguments,
                 std::uint64_t& hash) {
  std::uint64_t last = ~std::uint64_t{0};
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    const std::uint64_t code = device_code(tensor);
    if (code != last) hash = hash_mix(hash, code);
    last = code;
  });
}

void mix_shapes(const ExecutionGraph& graph, std::span<const Argument> arguments,
                std::uint64_t& hash) {
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    hash = hash_mix(hash, static_cast<std::uint64_t>(tensor.dtype) + 100);
    for (std::int64_t extent : graph.shape(tensor)) {
      hash = hash_mix(hash, static_cast<std::uint64_t>(extent));
    }
  });
}

}  // namespace

std::string_view to_string(TemplateLevel level) {
  static constexpr std::string_view kNames[] = {"name+children+devices+shapes",
                                                "name+children+devices", "name+devices",
                                                "name+children", "name"};
  return enum_name(kNames, level);
}

TemplateKeys template_keys(const ExecutionGraph& graph, const Node& node) {
  const std::uint64_t name = graph.names.hash(node.name);
  std::uint64_t children = hash_mix(name, 1);
  for (std::int32_t child : graph.children(node)) {
    children = hash_mix(children, graph.names.hash(graph.node(child).name));
  }
  std::uint64_t devices = 2;
  mix_devices(graph, graph.inputs(node), devices);
  devices = hash_mix(devices, 3);
  mix_devices(graph, graph.outputs(node), devices);
  const std::uint64_t with_devices = hash_mix(children, devices);
  return {hash_mix(with_devices, shapes_hash(graph, node)), with_devices, hash_mix(name, devices),
          children, name};
}

std::uint64_t shapes_hash(const ExecutionGraph& graph, const Node& node) {
  std::uint64_t shapes = 4;
  mix_shapes(graph, graph.inputs(node), shapes);
  shapes = hash_mix(shapes, 5);
  mix_shapes(graph, graph.outputs(node), shapes);
  // Ops of one name and shape sometimes launch differently. A trace records each node's launches;
  // its id, or its place in the step, finds them again.
  if (is_from_trace(graph)) shapes = hash_mix(shapes, static_cast<std::uint64_t>(node.rf_id));
  return shapes;
}

LaunchTemplates::Found LaunchTemplates::find(const TemplateKeys& keys, TemplateLevel from) const {
  for (auto level = static_cast<std::size_t>(from); level < kTemplateLevels; ++level) {
    if (const Entry* entry = by_key[level].find(keys[level])) {
      return {&lists[entry->list], static_cast<TemplateLevel>(level)};
    }
  }
  return {};
}

const LaunchTemplate* LaunchTemplates::with_shapes(std::uint64_t devices_key,
                                                   std::uint64_t shapes) const {
  const auto& by_shapes = by_key[static_cast<std::size_t>(TemplateLevel::kShapes)];
  const Entry* entry = by_shapes.find(hash_mix(devices_key, shapes));
  return entry ? &lists[entry->list] : nullptr;
}

}  // namespace perfmodel
