#include "attention_support.hpp"

#include <fmt/format.h>

#include <charconv>

namespace perfmodel {
namespace {

// "sm_80": 80; 0 of other vendors.
int compute_capability(const Gpu& gpu) {
  constexpr std::string_view kPrefix = "sm_";
  const std::string_view target = gpu.target;
  int capability = 0;
  if (target.starts_with(kPrefix)) {
    std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), capability);
  }
  return capability;
}

}  // namespace

std::string lacks_attention(std::string_view kernel, const Gpu& gpu) {
  if (gpu.vendor == "amd") {
    if (kernel == "cudnn") return fmt::format("{} has no cuDNN", gpu.name);
    const bool has_kernels = gpu.target == "gfx90a" || gpu.target.starts_with("gfx94") ||
                             gpu.target.starts_with("gfx95");
    return has_kernels ? "" : fmt::format("PyTorch has no fused attention for {}", gpu.target);
  }
  constexpr int kAmpere = 80;
  if (kernel == "efficient" || compute_capability(gpu) >= kAmpere) return "";
  return fmt::format("{} attention needs sm_80 or later, {} is {}", kernel, gpu.name, gpu.target);
}

}  // namespace perfmodel
