#include "perfmodel/detail/predicted_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace perfmodel {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kLeastShare = 1e-3;  // of a purpose that is worth a word

}  // namespace

PredictedMemory predicted_memory(const StaticMemory& of_graph,
                                 const std::optional<ScaledOut>& scaled, const Gpu& gpu) {
  PredictedMemory memory{.held = of_graph, .device_bytes = gpu.dram_gb * kGib};
  const bool sharded =
      scaled && scaled->strategy == ParallelStrategy::kFsdp && !scaled->own_collectives;
  if (!sharded) return memory;
  StaticMemory& held = memory.held;
  for (double* bytes :
       {&held.parameters, &held.tables, &held.gradients, &held.optimizer_state, &held.other}) {
    *bytes /= static_cast<double>(std::max<std::int64_t>(scaled->world, 1));
  }
  return memory;
}

std::string memory_text(const PredictedMemory& memory) {
  std::string text = fmt::format("{:.3g} GiB of {:.4g} GiB", memory.static_bytes() / kGib,
                                 memory.device_bytes / kGib);
  std::string_view before = ": ";
  for (const auto& [purpose, bytes] : memory.held.by_purpose()) {
    if (bytes < kLeastShare * memory.static_bytes() || bytes <= 0) continue;
    std::string name(purpose);
    std::ranges::replace(name, '_', ' ');
    text += fmt::format("{}{} {:.3g}", before, name, bytes / kGib);
    before = ", ";
  }
  return text;
}

std::string memory_warning(const PredictedMemory& memory, const Gpu& gpu) {
  if (memory.fits()) return {};
  return fmt::format("the step does not fit into {}: it holds {}, activations not counted",
                     gpu.name, memory_text(memory));
}

}  // namespace perfmodel
