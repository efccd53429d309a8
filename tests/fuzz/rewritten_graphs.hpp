#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"

/// Graphs that no recording is, for whatever takes a graph.
///
/// An input is a document {"graph": ..., "changes": [...], ...}. The graph is the name of a base or
/// an execution graph itself; a change is {"node": N, KEY: VALUE, ...} with the keys of
/// change_node(). A document without "graph" is an execution graph.
namespace perfmodel::fuzz {

/// The graph of an input. Whatever was changed goes through the reader, whose promises rewrites
/// rely on; nothing: the reader refuses it.
std::optional<ExecutionGraph> graph_of(const nlohmann::json& document, std::string_view text);

/// "--batch 6"; nothing: no such flag, or no such value.
std::optional<NamedRewrite> rewrite_of(const std::string& text);

/// Of every flag of `perfpredict rewrite` one value or several.
const std::vector<NamedRewrite>& each_rewrite();

/// It can be written and read again as the same.
void check_written(const ExecutionGraph& graph);

}  // namespace perfmodel::fuzz
