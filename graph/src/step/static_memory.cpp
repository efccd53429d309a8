#include "perfmodel/graph/detail/static_memory.hpp"

#include <vector>

namespace perfmodel {
namespace {

double& purpose_of(const StorageLifetime& storage, StaticMemory& made) {
  switch (storage.purpose) {
    case MemoryPurpose::kWeights: return storage.is_table ? made.tables : made.parameters;
    case MemoryPurpose::kGradients: return made.gradients;
    case MemoryPurpose::kOptimizer: return made.optimizer_state;
    default: return made.other;
  }
}

}  // namespace

StaticMemory static_memory(const StorageLifetimes& lifetimes, std::span<const std::int64_t> bytes) {
  StaticMemory made;
  if (lifetimes.device != Device::Kind::kGpu) return made;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = lifetimes.storages[i];
    const bool stays =
        storage.made_by == StorageLifetime::kBefore || storage.purpose == MemoryPurpose::kGradients;
    if (stays) purpose_of(storage, made) += static_cast<double>(bytes[i]);
  }
  return made;
}

StaticMemory static_memory(const ExecutionGraph& graph) {
  const StorageLifetimes lifetimes = storage_lifetimes(graph);
  std::vector<std::int64_t> bytes;
  for (const StorageLifetime& storage : lifetimes.storages) bytes.push_back(storage.bytes);
  return static_memory(lifetimes, bytes);
}

}  // namespace perfmodel
