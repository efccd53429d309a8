#include "perfmodel/graph/detail/static_memory.hpp"

namespace perfmodel {
namespace {

double& purpose_of(const StorageLifetime& storage, StaticMemory& made) {
  switch (storage.purpose) {
    case MemoryPurpose::kWeights:
      return storage.is_table ? made.tables : made.parameters;
    case MemoryPurpose::kGradients:
      return made.gradients;
    case MemoryPurpose::kOptimizer:
      return made.optimizer_state;
    default:
      return made.other;
  }
}

}  // namespace

StaticMemory static_memory(const StorageLifetimes& lifetimes) {
  StaticMemory made;
  if (lifetimes.device != Device::Kind::kGpu) return made;
  for (const StorageLifetime& storage : lifetimes.storages) {
    const bool stays =
        storage.made_by == StorageLifetime::kBefore || storage.purpose == MemoryPurpose::kGradients;
    if (stays) purpose_of(storage, made) += static_cast<double>(storage.bytes);
  }
  return made;
}

StaticMemory static_memory(const ExecutionGraph& graph) {
  return static_memory(storage_lifetimes(graph));
}

}  // namespace perfmodel
