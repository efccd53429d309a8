#include "step_memory.hpp"

#include <algorithm>
#include <numeric>

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

/// Tensors without a storage, and what the forward pass ends with, where it is gone by the time of
/// the peak: a variable of the program may hold it.
double unsure_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                    const std::vector<std::int64_t>& bytes, std::int32_t peak_node) {
  const std::int32_t last = last_forward_op(graph, plan.lifetimes);
  auto unsure = static_cast<double>(plan.lifetimes.uncounted_bytes);
  if (last < 0) return unsure;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = plan.lifetimes.storages[i];
    const bool gone = storage.freed_after < peak_node;
    if (gone && storage.made_by < last && storage.freed_after >= last) {
      unsure += static_cast<double>(bytes[i]);
    }
  }
  return unsure;
}

/// Room for the allocator beside the context.
double room_on(const Gpu& gpu) {
  return gpu.usable_memory().value - static_cast<double>(gpu.architecture.context_bytes);
}

/// A device that is full, on which the allocator gives cached segments back. Empty: the step fails.
std::optional<AllocatorUse> use_of_full_device(const MemoryPlan& plan,
                                               const std::vector<std::int64_t>& bytes,
                                               const std::vector<std::int64_t>& held,
                                               const Gpu& gpu, double peak_in_use,
                                               bool expandable_segments) {
  const double room = room_on(gpu);
  if (room <= 0 || peak_in_use > room) return std::nullopt;
  return allocator_use(plan, bytes, held,
                       {.expandable_segments = expandable_segments,
                        .device_bytes = static_cast<std::int64_t>(room)});
}

std::vector<std::int64_t> workspaces(const MemoryPlan& plan, const Gpu& gpu) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(blas_handles(plan)),
                                   gpu.architecture.blas_workspace_bytes);
}

double sum_of(const MemoryByPurpose& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
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
    for (std::int64_t workspace : workspaces(plan, *gpu)) {
      held.push_back(workspace);
      at(memory.by_purpose, MemoryPurpose::kWorkspace) += static_cast<double>(workspace);
    }
  }
  const double in_use = sum_of(memory.by_purpose);
  auto use = allocator_use(plan, bytes, held, {.expandable_segments = expandable_segments});
  if (gpu && use && static_cast<double>(use->peak_reserved) > room_on(*gpu)) {
    const auto squeezed = use_of_full_device(plan, bytes, held, *gpu, in_use, expandable_segments);
    if (squeezed) use = squeezed;
  }
  if (use) {
    memory.peak_allocated_bytes = static_cast<double>(use->peak_allocated);
    memory.peak_reserved_bytes = static_cast<double>(use->peak_reserved);
  }
  at(memory.by_purpose, MemoryPurpose::kReserve) = memory.needed_bytes() - in_use;
  return memory;
}

bool step_fits(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes, const Gpu& gpu,
               bool expandable_segments) {
  const std::vector<std::int64_t> held = workspaces(plan, gpu);
  const double in_use =
      std::accumulate(held.begin(), held.end(), graph_memory(plan, bytes).peak_allocated_bytes);
  return use_of_full_device(plan, bytes, held, gpu, in_use, expandable_segments).has_value();
}

}  // namespace perfmodel
