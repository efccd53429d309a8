#pragma once

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/predictors/detail/op_rules.hpp"

/// Small hand-made graphs for op-rule tests.
namespace perfmodel::test_support {

inline int size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kComplex64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kFloat8:
    case DType::kFloat4:
      return 1;
    default:
      return 4;
  }
}

class GraphFixture {
 public:
  /// A tensor of its own storage.
  Argument tensor(std::vector<std::int64_t> shape, DType dtype = DType::kFloat32,
                  Device::Kind kind = Device::Kind::kGpu, int device = 0) {
    Tensor t;
    t.id = t.storage_id = next_id_++;
    t.numel = 1;
    for (std::int64_t size : shape) t.numel *= size;
    t.item_size = size_of(dtype);
    t.dtype = dtype;
    t.device = {.kind = kind, .index = static_cast<std::int16_t>(device)};
    t.shape_begin = static_cast<std::uint32_t>(graph_.shape_pool.size());
    t.rank = static_cast<std::uint16_t>(shape.size());
    graph_.shape_pool.insert(graph_.shape_pool.end(), shape.begin(), shape.end());
    graph_.tensors.push_back(t);
    return {.kind = Argument::Kind::kTensor,
            .index = static_cast<std::uint32_t>(graph_.tensors.size() - 1)};
  }
  Argument cpu_tensor(std::vector<std::int64_t> shape, DType dtype = DType::kFloat32) {
    return tensor(std::move(shape), dtype, Device::Kind::kCpu, -1);
  }
  static Argument integer(std::int64_t value) {
    return {.kind = Argument::Kind::kInt, .integer = value};
  }
  static Argument boolean(bool value) {
    return {.kind = Argument::Kind::kBool, .integer = value ? 1 : 0};
  }
  static Argument real(double value) { return {.kind = Argument::Kind::kDouble, .real = value}; }
  static Argument none() { return {}; }
  Argument list(const std::vector<Argument>& items) {
    Argument result{.kind = Argument::Kind::kList,
                    .index = static_cast<std::uint32_t>(graph_.arguments.size()),
                    .count = static_cast<std::uint32_t>(items.size())};
    graph_.arguments.insert(graph_.arguments.end(), items.begin(), items.end());
    return result;
  }
  Argument integers(const std::vector<std::int64_t>& values) {
    std::vector<Argument> items;
    for (std::int64_t value : values) items.push_back(integer(value));
    return list(items);
  }

  /// Adds a node; returns its index.
  int node(std::string_view name, const std::vector<Argument>& inputs,
           const std::vector<Argument>& outputs = {}, std::string_view schema = "") {
    Node n;
    n.id = next_id_++;
    n.name = graph_.names.intern(name);
    n.op_schema = graph_.names.intern(schema);
    n.inputs_begin = static_cast<std::uint32_t>(graph_.arguments.size());
    n.inputs_count = static_cast<std::uint32_t>(inputs.size());
    graph_.arguments.insert(graph_.arguments.end(), inputs.begin(), inputs.end());
    n.outputs_begin = static_cast<std::uint32_t>(graph_.arguments.size());
    n.outputs_count = static_cast<std::uint32_t>(outputs.size());
    graph_.arguments.insert(graph_.arguments.end(), outputs.begin(), outputs.end());
    graph_.nodes.push_back(n);
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  /// Makes `children` the children of `parent`.
  void adopt(int parent, const std::vector<int>& children) {
    Node& n = at(parent);
    n.children_begin = static_cast<std::uint32_t>(graph_.child_indices.size());
    n.children_count = static_cast<std::uint32_t>(children.size());
    graph_.child_indices.insert(graph_.child_indices.end(), children.begin(), children.end());
    for (int child : children) at(child).parent = parent;
  }

  Node& at(int index) { return graph_.nodes[static_cast<std::size_t>(index)]; }
  ExecutionGraph& graph() { return graph_; }

  struct Lowered {
    bool known = false;  ///< a rule exists
    bool ok = false;     ///< and took the arguments
    std::vector<KernelWork> kernels;
  };
  Lowered lower(int index, const Gpu& gpu, int forward = -1) {
    Lowered result;
    const OpView view{graph_, at(index), forward >= 0 ? &at(forward) : nullptr};
    const OpRule* rule = OpRuleRegistry::builtin().find(view.name());
    result.known = rule != nullptr;
    if (rule) result.ok = rule->lower(view, gpu, result.kernels);
    return result;
  }

 private:
  ExecutionGraph graph_;
  std::int64_t next_id_ = 1;
};

/// An architecture of the data folder.
inline const Architecture& architecture(std::string_view name) {
  static const std::vector<Architecture> known =
      read_architectures(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "architectures")
          .value();
  return *std::ranges::find(known, name, &Architecture::name);
}

/// A GPU with round numbers: 10 TFLOP/s, 1 TB/s, 100 SMs, 10 MB of cache, 16 GB/s PCIe.
inline Gpu round_gpu() {
  Gpu gpu;
  gpu.name = "round";
  gpu.title = "Round";
  gpu.vendor = "nvidia";
  gpu.architecture = architecture("ampere");
  gpu.num_sms = 100;
  gpu.boost_clock_mhz = 1500;
  gpu.peak_tflop_per_s.fp32 = 10;
  gpu.peak_tflop_per_s.fp16 = 20;
  gpu.peak_tflop_per_s.tf32_matrix = 50;
  gpu.peak_tflop_per_s.fp16_matrix = 100;
  gpu.dram_type = "HBM2";
  gpu.dram_gb = 16;
  gpu.dram_bandwidth = {1e12};
  gpu.l2_size = {10e6};
  gpu.shared_memory_per_sm = {64 * 1024};
  gpu.max_threads_per_sm = 2048;
  gpu.pcie_generation = 3;
  gpu.pcie_lanes = 16;
  gpu.pcie_bandwidth = {16e9};
  gpu.tdp_w = 400;
  return gpu;
}

}  // namespace perfmodel::test_support
