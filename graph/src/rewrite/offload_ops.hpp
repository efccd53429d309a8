#pragma once

#include <fmt/format.h>

#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

// Ops that take activations to host memory and back, on a stream of their own; see
// rewrite_offload(). No program records them.
inline constexpr std::string_view kOffloadOps = "offload::";
inline constexpr std::string_view kOffloadSend = "offload::to_host";
inline constexpr std::string_view kOffloadRelease = "offload::release";
inline constexpr std::string_view kOffloadFetch = "offload::to_device";

/// An error (kImpossible) at a graph with such ops, which `rewrite` would have to see through.
inline Result<void> check_without_offload(const ExecutionGraph& graph, std::string_view rewrite) {
  for (const Node& node : graph.nodes) {
    if (!graph.name(node).starts_with(kOffloadOps)) continue;
    return fail(ErrorCode::kImpossible,
                fmt::format("{}: expected a graph whose activations stay on the GPU, found {} "
                            "(node {}): offload-activations comes behind this",
                            rewrite, graph.name(node), node.id));
  }
  return {};
}

}  // namespace perfmodel
