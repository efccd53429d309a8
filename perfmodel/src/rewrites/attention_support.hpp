#pragma once

#include <string>
#include <string_view>

#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Why PyTorch has no such attention ("flash", "efficient", "cudnn") on a GPU; empty: it has. As of
/// PyTorch 2.5: flash and cuDNN's from Ampere on, memory-efficient attention on every NVIDIA GPU;
/// on AMD's flash and the memory-efficient one from MI200 on (AOTriton).
std::string lacks_attention(std::string_view kernel, const Gpu& gpu);

}  // namespace perfmodel
