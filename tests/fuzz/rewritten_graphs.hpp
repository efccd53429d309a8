#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../graph/rewrite_invariants.hpp"
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

/// Whether the graph of an input holds the ops of a program, each with its tensors: only sizes,
/// types and devices were changed, not the order, names or numbers of autograd.
bool is_program(const nlohmann::json& document);

/// "--batch 6"; nothing: no such flag, or no such value.
std::optional<NamedRewrite> rewrite_of(const std::string& text);

/// Aborts if an invariant is broken (tests/graph/rewrite_invariants.hpp), and prints after which
/// rewrites.
void check_unbroken(const test_support::Violation& violation, const std::string& rewrites);

}  // namespace perfmodel::fuzz
