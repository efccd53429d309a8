#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "rewrite/graph_copy.hpp"

namespace perfmodel {

/// Changes to the nodes of a graph: said first, in any order, then written in one go.
class GraphEdit {
 public:
  /// Writes nodes through builder() at a place that copy() has gone to.
  using Write = std::function<void()>;

  explicit GraphEdit(const ExecutionGraph& source, const PyTorch& pytorch = {});

  const ExecutionGraph& source() const { return copy_.source(); }
  GraphCopy& copy() { return copy_; }
  GraphBuilder& builder() { return copy_.builder(); }
  ExecutionGraph& made() { return copy_.builder().graph_being_made(); }

  /// Leaves a node out with the nodes below it. `write` is called in its place, even where a node
  /// above it is gone too.
  void replace(std::int32_t node, Write write = {});
  /// Leaves the node alone out: its children move up.
  void unwrap(std::int32_t node) { changes_[node].unwrapped = true; }
  /// Keeps the node and leaves out those below it; `write` is called instead.
  void refill(std::int32_t node, Write write);
  /// Calls `write` before the node.
  void precede(std::int32_t node, Write write) { changes_[node].before = std::move(write); }
  /// Calls `write` after the node itself, before those below it.
  void follow(std::int32_t node, Write write) { changes_[node].behind = std::move(write); }
  /// Calls `write` after the node and those below it, which are written in one piece.
  void follow_tree(std::int32_t node, Write write) {
    changes_[node].behind_tree = std::move(write);
  }
  /// Called with each node that is copied and its copy.
  void on_each_copy(std::function<void(std::int32_t, Node&)> change) {
    on_copy_ = std::move(change);
  }

  ExecutionGraph write();

 private:
  struct Change {
    bool gone = false, unwrapped = false, hollow = false;
    Write before = {}, instead = {}, behind = {}, behind_tree = {};
  };

  void write(std::int32_t node);
  void write_below(std::int32_t node);

  GraphCopy copy_;
  std::map<std::int32_t, Change> changes_;
  std::function<void(std::int32_t, Node&)> on_copy_;
  std::vector<bool> done_, hollow_;  // by node: written; nothing below it is copied
};

}  // namespace perfmodel
