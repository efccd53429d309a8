#include "perfmodel/graph/detail/event_names.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/lower_case.hpp"

namespace perfmodel {
namespace {

constexpr std::array<std::string_view, 2> kCheckpointPrefixes = {
    "CheckpointFunction", "autograd::engine::evaluate_function: CheckpointFunctionBackward"};

constexpr std::array<std::string_view, 9> kLabelPrefixes = {"ProfilerStep",
                                                            "##",
                                                            "Optimizer.",
                                                            "enumerate(DataLoader)",
                                                            "DistributedDataParallel.",
                                                            "nn.Module:",
                                                            "[param|",
                                                            "[pytorch|",
                                                            "DLRM "};

// Sorted, for binary search. The list is that of the public traces' reference figures.
constexpr std::array<std::string_view, 28> kLaunchCalls = {"cuGraphLaunch",
                                                           "cuLaunchCooperativeKernel",
                                                           "cuLaunchKernel",
                                                           "cuLaunchKernelEx",
                                                           "cuMemcpyAsync",
                                                           "cuMemsetD32Async",
                                                           "cuMemsetD8Async",
                                                           "cudaGraphLaunch",
                                                           "cudaLaunchCooperativeKernel",
                                                           "cudaLaunchKernel",
                                                           "cudaLaunchKernelExC",
                                                           "cudaMemcpy",
                                                           "cudaMemcpy2DAsync",
                                                           "cudaMemcpyAsync",
                                                           "cudaMemcpyPeerAsync",
                                                           "cudaMemset",
                                                           "cudaMemsetAsync",
                                                           "hipExtLaunchKernel",
                                                           "hipExtModuleLaunchKernel",
                                                           "hipGraphLaunch",
                                                           "hipLaunchCooperativeKernel",
                                                           "hipLaunchKernel",
                                                           "hipMemcpy",
                                                           "hipMemcpyAsync",
                                                           "hipMemcpyWithStream",
                                                           "hipMemset",
                                                           "hipMemsetAsync",
                                                           "hipModuleLaunchKernel"};

template <std::size_t kCount>
bool starts_with_any(const std::array<std::string_view, kCount>& prefixes, std::string_view name) {
  if (name.empty()) return false;
  return std::any_of(prefixes.begin(), prefixes.end(), [name](std::string_view prefix) {
    return prefix.front() == name.front() && name.starts_with(prefix);
  });
}

bool contains_ignoring_case(std::string_view text, std::string_view lower) {
  return std::search(text.begin(), text.end(), lower.begin(), lower.end(),
                     [](char a, char b) { return lower_case(a) == b; }) != text.end();
}

}  // namespace

bool is_label_name(std::string_view name) {
  return starts_with_any(kLabelPrefixes, name) || is_checkpoint_name(name);
}

bool is_checkpoint_name(std::string_view name) {
  return starts_with_any(kCheckpointPrefixes, name);
}

bool is_structural_name(std::string_view name) { return name.starts_with("[pytorch|"); }

bool is_launch_call(std::string_view name) {
  return std::binary_search(kLaunchCalls.begin(), kLaunchCalls.end(), name);
}

bool is_copy_call(std::string_view name) {
  return is_launch_call(name) && name.find("Memcpy") != std::string_view::npos;
}

bool is_graph_launch_call(std::string_view name) { return name.ends_with("GraphLaunch"); }

SyncKind sync_kind(std::string_view name) {
  const bool known = name.starts_with("cuda") || name.starts_with("hip") || name.starts_with("cu");
  if (!known || !name.ends_with("Synchronize")) return SyncKind::kNone;
  if (name.find("Stream") != std::string_view::npos) return SyncKind::kStream;
  if (name.find("Event") != std::string_view::npos) return SyncKind::kEvent;
  return SyncKind::kDevice;
}

bool is_collective_kernel(std::string_view name) {
  return contains_ignoring_case(name, "nccl") || contains_ignoring_case(name, "rccl") ||
         contains_ignoring_case(name, "allreduce") || contains_ignoring_case(name, "all_reduce");
}

bool is_profiler_step(std::string_view name) { return name.starts_with("ProfilerStep"); }

}  // namespace perfmodel
