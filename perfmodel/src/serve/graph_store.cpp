#include "graph_store.hpp"

#include <fmt/format.h>

#include <mutex>

namespace perfmodel::serve {
namespace {

// Results for a prepared graph take about as much memory as the graph itself.
std::size_t memory_of(const ExecutionGraph& graph) {
  const std::size_t own =
      graph.nodes.capacity() * sizeof(Node) + graph.arguments.capacity() * sizeof(Argument) +
      graph.tensors.capacity() * sizeof(Tensor) +
      graph.shape_pool.capacity() * sizeof(std::int64_t) + graph.names.size() * 128 + sizeof graph;
  return 2 * own;
}

}  // namespace

Result<void> GraphStore::put(const std::string& name, PreparedGraph graph) {
  const std::size_t bytes = memory_of(graph.graph());
  Entry made{std::make_shared<const PreparedGraph>(std::move(graph)), bytes};
  const std::unique_lock lock(mutex_);
  const auto known = graphs_.find(name);
  const std::size_t freed = known == graphs_.end() ? 0 : known->second.bytes;
  if (known == graphs_.end() && graphs_.size() >= max_graphs_) {
    return decline(
        fmt::format("expected at most {} graphs, found one more: unload some", max_graphs_));
  }
  if (bytes_ - freed + bytes > max_bytes_) {
    return decline(fmt::format(
        "expected graphs of at most {} MiB in all, found {} MiB with this one: unload some",
        max_bytes_ >> 20, (bytes_ - freed + bytes) >> 20));
  }
  std::swap(graphs_[name], made);  // its last user frees the old one after the lock
  bytes_ += bytes - freed;
  return {};
}

bool GraphStore::remove(const std::string& name) {
  Entry removed;
  const std::unique_lock lock(mutex_);
  const auto known = graphs_.find(name);
  if (known == graphs_.end()) return false;
  removed = std::move(known->second);
  bytes_ -= removed.bytes;
  graphs_.erase(known);
  return true;
}

std::shared_ptr<const PreparedGraph> GraphStore::find(const std::string& name) const {
  const std::shared_lock lock(mutex_);
  const auto known = graphs_.find(name);
  return known == graphs_.end() ? nullptr : known->second.graph;
}

std::size_t GraphStore::count() const {
  const std::shared_lock lock(mutex_);
  return graphs_.size();
}

std::size_t GraphStore::bytes() const {
  const std::shared_lock lock(mutex_);
  return bytes_;
}

}  // namespace perfmodel::serve
