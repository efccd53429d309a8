#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "perfmodel/predictor.hpp"

namespace perfmodel::serve {

/// Graphs by name, with a bound on their number and memory. Thread-safe.
class GraphStore {
 public:
  GraphStore(std::size_t max_graphs, std::size_t max_bytes)
      : max_graphs_(max_graphs), max_bytes_(max_bytes) {}

  /// In the place of one of that name, if there is one. Error kImpossible: no room.
  Result<void> put(const std::string& name, PreparedGraph graph);
  bool remove(const std::string& name);
  std::shared_ptr<const PreparedGraph> find(const std::string& name) const;

  std::size_t count() const;
  std::size_t bytes() const;

 private:
  struct Entry {
    std::shared_ptr<const PreparedGraph> graph;
    std::size_t bytes = 0;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Entry> graphs_;
  std::size_t bytes_ = 0;
  const std::size_t max_graphs_, max_bytes_;
};

}  // namespace perfmodel::serve
