#include "perfmodel/detail/predicted_memory.hpp"

#include <fmt/format.h>

namespace perfmodel {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kLeastShare = 5e-3;  // smallest share of a purpose that is worth a word

}  // namespace

std::string rough_gib(double bytes) {
  const double gib = bytes / kGib;
  return gib < 999.5 ? fmt::format("{:.3g}", gib) : fmt::format("{:.0f}", gib);
}

std::string memory_text(const PredictedMemory& memory) {
  std::string text = fmt::format("{} GiB of {:.4g} GiB", rough_gib(memory.needed_bytes()),
                                 memory.device_bytes / kGib);
  std::string_view before = ": ";
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    const double bytes = memory.by_purpose[i];
    if (bytes <= kLeastShare * memory.needed_bytes()) continue;
    text +=
        fmt::format("{}{} {}", before, to_string(static_cast<MemoryPurpose>(i)), rough_gib(bytes));
    before = ", ";
  }
  return text;
}

std::string memory_warning(const PredictedMemory& memory, const Gpu& gpu) {
  if (memory.fits()) return {};
  return fmt::format("the step does not fit into {} by {} GiB: it needs {}", gpu.name,
                     rough_gib(-memory.headroom_bytes()), memory_text(memory));
}

}  // namespace perfmodel
