#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/graph/chakra.hpp"

namespace perfmodel {

/// A message from one rank to another.
struct ChakraTransfer {
  bool receives = false;  ///< the receiving one of two tasks
  std::int32_t from = 0, to = 0, tag = 0;
};

/// Content of a task in a Chakra file.
struct ChakraTask {
  std::size_t rank = 0;
  std::string name;
  bool on_host = false;
  std::optional<ChakraCollective> collective;
  std::int64_t comm_bytes = 0;  ///< largest buffer of a rank; of a message
  std::int64_t group_size = 0;
  std::string process_group;
  std::optional<ChakraTransfer> transfer;  ///< instead of a collective
};

/// One trace per rank of the tasks [range.first, range.second), in the order of their start.
/// `describe` gives nothing for tasks that are no work (meeting points): they are left out, and
/// what ranks wait for in each other is left to the collectives. What waits for a task without
/// duration waits for what that waits for. `data_deps` hold all that a node waits for, `ctrl_deps`
/// the order of its thread or stream. A rank that begins later than the first one begins with a
/// host node. The pause between two tasks of a stream counts to the second one. Other lags (launch
/// latency) have no place in the format, nor has what a stream still did when the range began: the
/// first step of a job finds its device idle.
std::vector<ChakraTrace> chakra_traces(
    const TaskGraph& graph, const Schedule& schedule,
    std::pair<TaskGraph::TaskId, TaskGraph::TaskId> range, std::size_t ranks,
    const std::function<std::optional<ChakraTask>(TaskGraph::TaskId)>& describe);

/// Converts a canonical kind ("all_reduce"); none if the format does not know it.
std::optional<ChakraCollective> chakra_collective(std::string_view kind);

}  // namespace perfmodel
