#pragma once

#include <string>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "step/backward_pass.hpp"
#include "step/nesting.hpp"

namespace perfmodel {

/// Gives a node arguments that no other node shares.
void own_arguments(GraphBuilder& builder, Node& node);

/// Re-emits a graph node by node; a rewrite leaves nodes out, changes them or writes new ones in
/// between with the same functions that the model builders use.
///
/// Nodes must be copied in their order. Nodes that are not copied are gone; their children move up
/// to the nearest ancestor that was copied. Nodes are numbered anew, tensors keep their ids. For
/// graphs that check_nesting() finds good.
class GraphCopy {
 public:
  explicit GraphCopy(const ExecutionGraph& source, const PyTorch& pytorch = {});

  const ExecutionGraph& source() const { return source_; }

  /// For new nodes: they go under the node that is open, see close_to(). Copied nodes and arguments
  /// may be changed in `builder().graph_being_made()` until finish().
  GraphBuilder& builder() { return builder_; }

  /// Copies node `index` of the source alone, after everything that was written so far.
  void copy(std::int32_t index);
  /// Writes node `index`, which was copied last, once more inside its copy; its children go there.
  /// Both copies are open and have arguments of their own.
  void nest(std::int32_t index);
  /// Copies the node and all nodes below it.
  void copy_tree(std::int32_t index);

  /// Goes to the thread of the source's node `index`, or of its nearest ancestor that was copied,
  /// and closes what is open inside it, so that new nodes become its last children. After an
  /// orphan, which closes its thread, the node is opened again.
  void close_to(std::int32_t index);
  /// The same with the parent of node `index`, so that new nodes become its siblings; orphans have
  /// their thread around them.
  void close_beside(std::int32_t index);

  /// Position of the copy of a source's node in the graph being made; -1: not copied.
  std::int32_t copied(std::int32_t index) const { return copies_[index]; }
  /// The id that the last copy of a source's node got; 0: not copied.
  std::int64_t id_of_copy(std::int64_t id);

  /// Opens a backward function that the source lacks, next to one that it has: the node that
  /// evaluates it and its own.
  void begin_function(const BackwardFunction& next_to, const std::string& name, TensorRef gradient,
                      std::int64_t sequence);

  /// A tensor of the source for use in new nodes.
  TensorRef tensor(const Argument& argument) { return builder_.tensor_of_source(argument.index); }

  ExecutionGraph finish() { return builder_.finish(); }

 private:
  void open_parent(std::int32_t index);
  void write(std::int32_t index);

  const ExecutionGraph& source_;
  GraphBuilder builder_;
  std::vector<std::int32_t> copies_;  // per node of the source
};

}  // namespace perfmodel
