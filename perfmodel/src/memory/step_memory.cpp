#include "step_memory.hpp"

#include <algorithm>
#include <numeric>

#include "allocator_use.hpp"

namespace perfmodel {
namespace {

// Storages of which a rank keeps a part, and storages that its optimizer makes from them.
bool belongs_to_shard(const StorageLifetime& storage, int stage, std::int32_t optimizer_begin) {
  switch (storage.purpose) {
    case MemoryPurpose::kWeights: return stage >= 3;
    case MemoryPurpose::kGradients: return stage >= 2;
    case MemoryPurpose::kOptimizer: return stage >= 1;
    default:
      return (stage >= 3 && storage.made_by == StorageLifetime::kBefore) ||
             (stage >= 1 && storage.made_by >= optimizer_begin);
  }
}

/// The largest unit of weights from outside, in the order in which the forward pass first uses
/// them.
double largest_unit(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes) {
  double unit = 0, largest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = plan.lifetimes.storages[i];
    if (storage.made_by != StorageLifetime::kBefore) break;
    if (storage.purpose != MemoryPurpose::kWeights) continue;
    if (unit >= ScaleOut{}.fsdp_unit_bytes) unit = 0;
    unit += static_cast<double>(bytes[i]);
    largest = std::max(largest, unit);
  }
  return largest;
}

/// Gradients that are whole until their bucket is full.
double largest_bucket(const MemoryPlan& plan, const ExecutionGraph& graph,
                      const std::vector<std::int64_t>& bytes) {
  constexpr double kNumbers = 5e8;  // DeepSpeed's reduce_bucket_size
  double all = 0, limit = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = plan.lifetimes.storages[i];
    if (storage.purpose != MemoryPurpose::kGradients) continue;
    all += static_cast<double>(bytes[i]);
    limit = std::max(limit, kNumbers * graph.tensors[storage.tensor].item_size);
  }
  return std::min(all, limit);
}

/// Memory of libraries that the graph does not show.
double library_bytes(const MemoryPlan& plan, const ExecutionGraph& graph, const RankShare& share,
                     const Gpu& gpu) {
  const bool communicates = share.zero.world > 1 || !graph.comm_records.empty();
  double bytes = 0;
  if (communicates) bytes += static_cast<double>(gpu.architecture.collective_buffer_bytes);
  if (plan.has_convolutions) {
    bytes += static_cast<double>(gpu.architecture.convolution_workspace_bytes);
  }
  return bytes;
}

/// The last top-level op before the backward pass; -1: there is none.
std::int32_t last_forward_op(const ExecutionGraph& graph, const StorageLifetimes& lifetimes) {
  for (std::int32_t i = lifetimes.forward_end - 1; i >= lifetimes.step.begin; --i) {
    const Node& node = graph.node(i);
    const bool is_op = !node.is_label && !node.is_structural && node.inputs_count > 0;
    const bool is_top = node.parent < 0 || graph.node(node.parent).is_label ||
                        graph.node(node.parent).is_structural;
    if (is_op && is_top) return i;
  }
  return -1;
}

/// PyTorch has one per thread that computes: the main one, and autograd's.
int blas_handles(const MemoryPlan& plan) { return plan.lifetimes.has_backward ? 2 : 1; }

/// Tensors without a storage, and the result of the forward pass if it is gone by the time of the
/// peak: a variable of the program may hold it.
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

/// Room for the allocator: the device without the context.
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

/// The least device on which a step runs that `gpu` is too small for, to a few percent. Empty: all
/// that the allocator would like to have is less than that.
std::optional<AllocatorUse> use_of_larger_device(const MemoryPlan& plan,
                                                 const std::vector<std::int64_t>& bytes,
                                                 const std::vector<std::int64_t>& held,
                                                 const Gpu& gpu, double peak_in_use, double liked,
                                                 bool expandable_segments) {
  const double too_small = room_on(gpu);
  for (const double factor : {1.01, 1.03, 1.06, 1.1, 1.3}) {
    const double room = factor * std::max(peak_in_use, too_small);
    if (room >= liked) break;
    const auto use = allocator_use(plan, bytes, held,
                                   {.expandable_segments = expandable_segments,
                                    .device_bytes = static_cast<std::int64_t>(room)});
    if (use && static_cast<double>(use->peak_reserved) > too_small) return use;
  }
  return std::nullopt;
}

/// Allocations in addition to storages for all of the step: gathered shards, workspaces.
std::vector<std::int64_t> held_throughout(const MemoryPlan& plan, const RankShare& share,
                                          const Gpu* gpu) {
  std::vector<std::int64_t> held;
  if (share.gathered_bytes > 0) held.push_back(static_cast<std::int64_t>(share.gathered_bytes));
  if (gpu == nullptr) return held;
  held.insert(held.end(), static_cast<std::size_t>(blas_handles(plan)),
              gpu->architecture.blas_workspace_bytes);
  return held;
}

double sum_of(const MemoryByPurpose& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

}  // namespace

RankShare rank_share(const std::optional<ScaledOut>& scaled) {
  const bool shards =
      scaled && scaled->strategy == ParallelStrategy::kFsdp && !scaled->own_collectives;
  if (!scaled) return {};
  return {.zero = {.world = std::max<std::int64_t>(scaled->world, 1), .stage = shards ? 3 : 0},
          .gathered_bytes = shards ? scaled->gathered_bytes : 0};
}

RankShare rank_share(const ZeroSharding& zero, const MemoryPlan& plan,
                     const ExecutionGraph& graph) {
  RankShare share{.zero = zero};
  if (zero.world <= 1 || zero.stage < 2) return share;
  const std::vector<std::int64_t> bytes = storage_bytes(plan, graph);
  share.gathered_bytes = zero.stage == 2 ? largest_bucket(plan, graph, bytes)
                                         : gathered_at_once(largest_unit(plan, bytes), ScaleOut{});
  return share;
}

std::vector<std::int64_t> rank_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                                     const RankShare& share) {
  std::vector<std::int64_t> bytes = storage_bytes(plan, graph);
  const auto [world, stage] = share.zero;
  if (world <= 1 || stage < 1) return bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (belongs_to_shard(plan.lifetimes.storages[i], stage, plan.lifetimes.optimizer_begin)) {
      bytes[i] = (bytes[i] + world - 1) / world;
    }
  }
  return bytes;
}

PredictedMemory step_memory(const MemoryPlan& plan, const ExecutionGraph& graph,
                            const RankShare& share, const Gpu* gpu, bool expandable_segments) {
  const std::vector<std::int64_t> bytes = rank_bytes(plan, graph, share);
  const GraphMemory made = graph_memory(plan, bytes);
  PredictedMemory memory{.held = static_memory(plan.lifetimes, bytes),
                         .activation_bytes = made.activation_bytes,
                         .by_purpose = made.at_peak,
                         .unsure_bytes = unsure_bytes(plan, graph, bytes, made.peak_node)};
  const std::vector<std::int64_t> held = held_throughout(plan, share, gpu);
  at(memory.by_purpose, MemoryPurpose::kCommunication) += share.gathered_bytes;
  if (gpu) {
    memory.context_bytes = static_cast<double>(gpu->architecture.context_bytes);
    memory.device_bytes = gpu->usable_memory().value;
    memory.unsure_bytes += library_bytes(plan, graph, share, *gpu);
    at(memory.by_purpose, MemoryPurpose::kWorkspace) +=
        blas_handles(plan) * static_cast<double>(gpu->architecture.blas_workspace_bytes);
  }
  const double in_use = sum_of(memory.by_purpose);
  auto use = allocator_use(plan, bytes, held, {.expandable_segments = expandable_segments});
  if (gpu && use && static_cast<double>(use->peak_reserved) > room_on(*gpu)) {
    auto squeezed = use_of_full_device(plan, bytes, held, *gpu, in_use, expandable_segments);
    if (!squeezed) {
      squeezed = use_of_larger_device(plan, bytes, held, *gpu, in_use,
                                      static_cast<double>(use->peak_reserved), expandable_segments);
    }
    if (squeezed) use = squeezed;
  }
  // Beyond any address space the allocator gives nothing out.
  memory.peak_allocated_bytes = memory.peak_reserved_bytes = in_use;
  if (use) {
    memory.peak_allocated_bytes = static_cast<double>(use->peak_allocated);
    memory.peak_reserved_bytes = static_cast<double>(use->peak_reserved);
  }
  at(memory.by_purpose, MemoryPurpose::kReserve) = memory.needed_bytes() - in_use;
  return memory;
}

bool step_fits(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes,
               const RankShare& share, const Gpu& gpu, bool expandable_segments) {
  const std::vector<std::int64_t> held = held_throughout(plan, share, &gpu);
  const double in_use =
      std::accumulate(held.begin(), held.end(), graph_memory(plan, bytes).peak_allocated_bytes);
  return use_of_full_device(plan, bytes, held, gpu, in_use, expandable_segments).has_value();
}

}  // namespace perfmodel
