#pragma once

#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "base/stop_point.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The limits are of the process: graphs grow and documents are read on behalf of others, deep
/// below the command.

/// Nodes that a graph may have that is built, rewritten or read. 2 million unless set.
std::size_t node_limit();
/// Memory that the vectors of a graph may take while it is built or rewritten; the process takes up
/// to 1.7 times as much, and about 1 kB per node. 288 MiB unless set.
std::uint64_t graph_memory_limit();
/// Bytes that a JSON document read as a whole may have (GPUs, architectures, topologies, kernel
/// models, overhead tables, specs of sweeps, plans, studies, suites, reports). 1 GiB unless set.
std::uint64_t json_document_limit();

/// Sets it from "5000000". Errors: no whole number from 1 to 2^31.
Result<void> set_node_limit(std::string_view text);
/// Set them from "512MiB" (units KiB, MiB, GiB, or bytes). Errors: no such size, 0.
Result<void> set_graph_memory_limit(std::string_view text);
Result<void> set_json_document_limit(std::string_view text);

/// Thrown by `growth_point`. Whoever hands out a graph makes it an error with `within_budget`.
struct OverBudget : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Asks whether a graph of so many nodes that takes so much memory may grow on. It throws
/// OverBudget beyond a limit, and ends the work like `stop_point`. Call it every few hundred nodes.
void growth_point(std::size_t nodes, std::uint64_t bytes = 0);

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
