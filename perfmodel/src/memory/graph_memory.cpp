#include "graph_memory.hpp"

#include <algorithm>
#include <numeric>

#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kBlock = 512;  // block size of CUDA's caching allocator

double rounded_up(std::int64_t bytes) {
  return static_cast<double>((bytes + kBlock - 1) / kBlock * kBlock);
}

std::size_t index(std::int32_t storage) { return static_cast<std::size_t>(storage); }

bool is_there_before(const StorageLifetime& storage) {
  return storage.made_by == StorageLifetime::kBefore ||
         storage.left_until != StorageLifetime::kBefore;
}

/// Bytes by purpose when the step begins.
MemoryByPurpose at_begin(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes) {
  MemoryByPurpose held{};
  const auto& storages = plan.lifetimes.storages;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    if (is_there_before(storages[i])) at(held, storages[i].purpose) += rounded_up(bytes[i]);
  }
  return held;
}

/// By node, whether it is part of a replayed CUDA graph, or the function that consists of one.
std::vector<bool> captured_nodes(const ExecutionGraph& graph) {
  std::vector<bool> inside(graph.nodes.size());
  std::vector<std::int32_t> callers;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const std::int32_t parent = graph.nodes[i].parent;
    const bool is_replay = graph.name(graph.nodes[i]) == "CUDAGraph.replay";
    inside[i] = is_replay || (parent >= 0 && inside[parent]);
    if (is_replay && parent >= 0) callers.push_back(parent);
  }
  for (const std::int32_t caller : callers) inside[caller] = true;
  return inside;
}

bool has_convolutions(const ExecutionGraph& graph) {
  for (NameId name = 0; name < graph.names.size(); ++name) {
    const Op* op = find_op(graph.names.text(name));
    if (op != nullptr && op->kind == OpKind::kConvolution) return true;
  }
  return false;
}

double sum(const MemoryByPurpose& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

}  // namespace

MemoryPlan memory_plan(const ExecutionGraph& graph) {
  MemoryPlan plan{.lifetimes = storage_lifetimes(graph),
                  .events = {},
                  .in_graph_pool = {},
                  .has_convolutions = has_convolutions(graph)};
  const auto& storages = plan.lifetimes.storages;
  const std::vector<bool> captured = captured_nodes(graph);
  for (const StorageLifetime& storage : storages) {
    plan.in_graph_pool.push_back(storage.made_by >= 0 && captured[storage.made_by]);
  }
  plan.events.reserve(2 * storages.size());
  const auto note = [&](std::int32_t node, std::size_t storage, bool is_free) {
    plan.events.push_back(
        {.node = node, .storage = static_cast<std::int32_t>(storage), .is_free = is_free});
  };
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const StorageLifetime& storage = storages[i];
    const bool always =
        storage.made_by == StorageLifetime::kBefore || storage.left_until >= storage.made_by;
    if (always) continue;
    if (storage.left_until != StorageLifetime::kBefore) note(storage.left_until, i, true);
    note(storage.made_by, i, false);
    if (storage.freed_after != StorageLifetime::kBeyond) note(storage.freed_after, i, true);
  }
  std::ranges::stable_sort(plan.events, [](const MemoryEvent& a, const MemoryEvent& b) {
    return a.node != b.node ? a.node < b.node : a.is_free < b.is_free;
  });
  return plan;
}

std::vector<std::int64_t> storage_bytes(const MemoryPlan& plan, const ExecutionGraph& graph) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(plan.lifetimes.storages.size());
  for (const StorageLifetime& storage : plan.lifetimes.storages) {
    const Tensor& tensor = graph.tensors[storage.tensor];
    bytes.push_back((tensor.offset + tensor.numel) * tensor.item_size);
  }
  return bytes;
}

GraphMemory graph_memory(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes) {
  const StorageLifetimes& lifetimes = plan.lifetimes;
  MemoryByPurpose held = at_begin(plan, bytes);
  double total = sum(held);
  GraphMemory made{.peak_allocated_bytes = total, .at_peak = held, .each_peak = held};
  for (const MemoryEvent& event : plan.events) {
    const MemoryPurpose purpose = lifetimes.storages[index(event.storage)].purpose;
    const double size = rounded_up(bytes[index(event.storage)]);
    double& of_purpose = at(held, purpose);
    of_purpose += event.is_free ? -size : size;
    total += event.is_free ? -size : size;
    at(made.each_peak, purpose) = std::max(at(made.each_peak, purpose), of_purpose);
    if (total > made.peak_allocated_bytes) {
      made.peak_allocated_bytes = total;
      made.peak_node = event.node;
      made.at_peak = held;
    }
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StorageLifetime& storage = lifetimes.storages[i];
    const bool kept = storage.purpose == MemoryPurpose::kActivations &&
                      storage.made_by < lifetimes.forward_end &&
                      storage.freed_after >= lifetimes.forward_end;
    if (kept) made.activation_bytes += static_cast<double>(bytes[i]);
  }
  return made;
}

std::vector<MemoryByPurpose> memory_curve(const MemoryPlan& plan,
                                          const std::vector<std::int64_t>& bytes) {
  MemoryByPurpose held = at_begin(plan, bytes);
  std::vector<MemoryByPurpose> curve;
  curve.reserve(plan.events.size());
  for (const MemoryEvent& event : plan.events) {
    const double size = rounded_up(bytes[index(event.storage)]);
    at(held, plan.lifetimes.storages[index(event.storage)].purpose) += event.is_free ? -size : size;
    curve.push_back(held);
  }
  return curve;
}

std::vector<std::int32_t> alive_at(const MemoryPlan& plan, std::int32_t node) {
  std::vector<std::int32_t> alive;
  const auto& storages = plan.lifetimes.storages;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const StorageLifetime& storage = storages[i];
    const bool made = storage.made_by <= node && node <= storage.freed_after;
    if (made || node <= storage.left_until) alive.push_back(static_cast<std::int32_t>(i));
  }
  return alive;
}

}  // namespace perfmodel
