#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Why PyTorch has no such attention ("flash", "efficient", "cudnn") on a GPU; empty: it has. As of
/// PyTorch 2.5: flash and cuDNN's from Ampere on, memory-efficient attention on every NVIDIA GPU;
/// on AMD's flash and the memory-efficient one from MI200 on (AOTriton).
std::string lacks_attention(std::string_view kernel, const Gpu& gpu);

/// Why the GPU cannot run this op of a graph: it lacks the kernel, or the kernel lacks the type or
/// the width of the heads there. Empty: it can, or the op is no fused attention. As of PyTorch 2.5
/// (`sdp_utils.cpp`): memory-efficient attention in bf16 needs Ampere, heads of cuDNN above 128
/// need sm_90, and sm_86 to sm_89 have no gradients of flash heads of 193 to 224.
std::string lacks_attention(const ExecutionGraph& graph, const Node& op, const Gpu& gpu);

/// "flash attention needs sm_80 or later, t4 is sm_75: 24 calls could not run there"
std::string lacking_calls(const std::string& reason, std::size_t calls);

/// Returns such a sentence for each reason that ops of the graph have.
std::vector<std::string> lacking_attention(const ExecutionGraph& graph, const Gpu& gpu);

}  // namespace perfmodel
