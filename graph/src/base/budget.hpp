#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "base/stop_point.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Nodes that a graph may have that is built, rewritten or read; with their arguments a node has
/// about 1 kB. One for the process: graphs grow on behalf of others, deep below the command. 2
/// million unless set.
std::size_t node_limit();

/// Sets it from "5000000". Errors: no whole number from 1 to 2^31.
Result<void> set_node_limit(std::string_view text);

/// Thrown by `growth_point`. Whoever hands out a graph makes it an error with `within_budget`.
struct OverBudget : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Asks whether a graph of so many nodes may grow on. It throws OverBudget beyond the limit, and
/// ends the work like `stop_point`. Call it every few hundred nodes.
void growth_point(std::size_t nodes);

/// The same for a trace of so many events, eight of which count as a node: they take about as much
/// memory.
void events_growth_point(std::size_t events);

/// Runs `work`, which returns a graph or trace, or why there is none. Error (kImpossible): it
/// passed the limit of nodes.
template <class Value = ExecutionGraph, class Work>
Result<Value> within_budget(Work&& work) {
  try {
    return work();
  } catch (const OverBudget& over) {
    return fail(ErrorCode::kImpossible, over.what());
  }
}

}  // namespace perfmodel
