#include "step_memory.hpp"

#include <algorithm>

#include "allocator_use.hpp"

namespace perfmodel {
namespace {

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

/// The last top-level op in front of the backward pass; -1: there is none.
std::int32_t last_forward_op(const ExecutionGraph& graph, const StorageLifetimes& lifetimes) {
  for (std::int32_t i = lifetimes.forward_end - 1; i >= lifetimes.step.begin; --i) {
    const Node& node = graph.nodes[static_cast<std::size_t>(i)];
    const bool is_op = !node.is_label && !node.is_structural && node.inputs_count > 0;
    const bool is_top = node.parent < 0 ||
                        graph.nodes[static_cast<std::size_t>(node.parent)].is_label ||
                        graph.nodes[static_cast<std::size_t>(node.parent)].is_structural;
    if (is_op && is_top) return i;
  }
  return -1;
}

/// PyTorch has one per thread that computes: the main one, and autograd's.
int blas_handles(const MemoryPlan& plan) { return plan.lifetimes.has_backward ? 2 : 1; }

/// What the forward pass ends with, where it is gone by the time of the peak: a variable of the
/// program may hold it.
double unsure_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                    const std::vector<std::int64_t>& bytes, std::int32_t peak_node) {
  const std::int32_t last = last_forward_op(graph, plan.lifetimes);
  if (last < 0) return 0;
  double unsure = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = plan.lifetimes.storages[i];
    const bool gone = storage.freed_after < peak_node;
    if (gone && storage.made_by < last && storage.freed_after >= last) {
      unsure += static_cast<double>(bytes[i]);
    }
  }
  return unsure;
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
                            const std::optional<ScaledOut>& scaled, const Gpu* gpu,
                            bool expandable_segments) {
  const std::vector<std::int64_t> bytes = rank_bytes(plan, graph, scaled);
  const GraphMemory made = graph_memory(plan, bytes);
  PredictedMemory memory{.held = static_memory(plan.lifetimes, bytes),
                         .activation_bytes = made.activation_bytes,
                         .by_purpose = made.at_peak,
                         .unsure_bytes = unsure_bytes(plan, graph, bytes, made.peak_node)};
  std::vector<std::int64_t> held;
  if (is_sharded(scaled)) {
    at(memory.by_purpose, MemoryPurpose::kCommunication) += scaled->gathered_bytes;
    held.push_back(static_cast<std::int64_t>(scaled->gathered_bytes));
  }
  if (gpu) {
    memory.context_bytes = static_cast<double>(gpu->architecture.context_bytes);
    memory.device_bytes = gpu->usable_memory().value;
    for (int i = 0; i < blas_handles(plan); ++i) {
      held.push_back(gpu->architecture.blas_workspace_bytes);
      at(memory.by_purpose, MemoryPurpose::kWorkspace) += static_cast<double>(held.back());
    }
  }
  AllocatorOptions options{.expandable_segments = expandable_segments};
  auto use = allocator_use(plan, bytes, held, options);
  const double room = memory.device_bytes - memory.context_bytes;
  const bool may_help = gpu && use && static_cast<double>(use->peak_reserved) > room &&
                        static_cast<double>(use->peak_allocated) <= room;
  if (may_help) {
    // Short of memory, the allocator gives cached segments back.
    options.device_bytes = static_cast<std::int64_t>(room);
    if (const auto squeezed = allocator_use(plan, bytes, held, options)) use = squeezed;
  }
  if (use) {
    memory.peak_allocated_bytes = static_cast<double>(use->peak_allocated);
    memory.peak_reserved_bytes = static_cast<double>(use->peak_reserved);
  }
  double in_use = 0;
  for (double of_purpose : memory.by_purpose) in_use += of_purpose;
  at(memory.by_purpose, MemoryPurpose::kReserve) = memory.needed_bytes() - in_use;
  return memory;
}

}  // namespace perfmodel
