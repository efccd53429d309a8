#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Two nodes are equal if these options agree, in addition to thread, depth in the tree, name and
/// scope, and dtypes and shapes of all tensors in inputs and outputs. Ids are never compared.
struct ComparisonOptions {
  bool sequence = true;  ///< autograd's numbers, counted from the smallest one of each graph
  bool devices = true;
  bool scalars = true;  ///< numbers, flags, strings, "<None>", lists of them
  bool schemas = false;

  /// Nodes of either graph that are left out together with everything below them.
  std::function<bool(const ExecutionGraph&, const Node&)> leave_out;
  /// Nodes of either graph that are left out while those below them stay, one level up.
  std::function<bool(const ExecutionGraph&, const Node&)> flatten;

  /// Compare only [begin, end) of the first graph, by node index, as `iterations()` gives it; end
  /// 0: all. A node whose parent is outside counts as one without parent.
  GraphIteration range = {};

  std::size_t context = 2;            ///< equal lines around a difference
  std::size_t longest_report = 1000;  ///< lines
};

/// Nodes of two graphs, aligned thread by thread with as few differences as possible (Myers).
struct GraphComparison {
  std::size_t equal = 0;        ///< nodes in both
  std::size_t only_first = 0;   ///< '-' in the report
  std::size_t only_second = 0;  ///< '+' in the report
  std::string report;           ///< unified diff, one indented line per node; empty if equal

  bool same() const { return equal > 0 && only_first == 0 && only_second == 0; }
};

/// Bookkeeping nodes (process, threads) are passed over; threads are paired in the order in which
/// they appear, nodes stand in the order in which they started (`rf_id`; ids where that is not
/// recorded). `first` is the recorded graph by custom.
GraphComparison compare_graphs(const ExecutionGraph& first, const ExecutionGraph& second,
                               const ComparisonOptions& options = {});

/// For gtest: counts and report.
std::ostream& operator<<(std::ostream& out, const GraphComparison& comparison);

}  // namespace perfmodel
