#include "step_memory.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

constexpr double kSoldGib = 1 << 30;  // sizes are sold in units of 2^30

bool is_sharded(const std::optional<ScaledOut>& scaled) {
  return scaled && scaled->strategy == ParallelStrategy::kFsdp && !scaled->own_collectives;
}

// What FSDP keeps of each parameter, and what its optimizer makes of that.
bool belongs_to_shard(const StorageLifetime& storage, std::int32_t optimizer_begin) {
  switch (storage.purpose) {
    case MemoryPurpose::kWeights:
    case MemoryPurpose::kGradients:
    case MemoryPurpose::kOptimizer:
      return true;
    default:
      return storage.made_by == StorageLifetime::kBefore || storage.made_by >= optimizer_begin;
  }
}

}  // namespace

std::vector<std::int64_t> rank_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                                     const std::optional<ScaledOut>& scaled) {
  std::vector<std::int64_t> bytes = storage_bytes(plan, graph);
  if (!is_sharded(scaled)) return bytes;
  const std::int64_t world = std::max<std::int64_t>(scaled->world, 1);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (belongs_to_shard(plan.lifetimes.storages[i], plan.lifetimes.optimizer_begin)) {
      bytes[i] = (bytes[i] + world - 1) / world;
    }
  }
  return bytes;
}

PredictedMemory step_memory(const MemoryPlan& plan, const ExecutionGraph& graph,
                            const std::optional<ScaledOut>& scaled, const Gpu* gpu) {
  const std::vector<std::int64_t> bytes = rank_bytes(plan, graph, scaled);
  const GraphMemory made = graph_memory(plan, bytes);
  PredictedMemory memory{.held = static_memory(plan.lifetimes, bytes),
                         .activation_bytes = made.activation_bytes,
                         .by_purpose = made.at_peak,
                         .device_bytes = gpu ? gpu->dram_gb * kSoldGib : 0};
  at(memory.by_purpose, MemoryPurpose::kCommunication) +=
      is_sharded(scaled) ? scaled->gathered_bytes : 0;
  for (double of_purpose : memory.by_purpose) memory.peak_allocated_bytes += of_purpose;
  memory.peak_reserved_bytes = memory.peak_allocated_bytes;
  at(memory.by_purpose, MemoryPurpose::kReserve) =
      memory.needed_bytes() - memory.peak_allocated_bytes;
  return memory;
}

}  // namespace perfmodel
