#pragma once

#include <optional>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"

/// Invariants of every graph that a rewrite gives. Each function returns the first violation in
/// words, or nothing.
namespace perfmodel::test_support {

using Violation = std::optional<std::string>;

/// Nodes are in the order of their ids, which are unique; parents and children agree, and all
/// indices are within their pools.
Violation broken_tree(const ExecutionGraph& graph);

/// The result nests as its source does (check_nesting()): a node comes after its parent, on the
/// same thread, and before the parent's end. Sources with threads inside of ops are passed over.
Violation broken_nesting(const ExecutionGraph& source, const ExecutionGraph& result);

/// A tensor or storage that the source made is made in the result before it is read there.
/// `numbers_too`: so are numbers on the host, some of which have the id of an earlier tensor in
/// recordings.
Violation read_before_made(const ExecutionGraph& source, const ExecutionGraph& result,
                           bool numbers_too = false);

/// Every mention of a storage in the first step is within a lifetime of it, and the peak of the
/// memory is not below the bytes that are kept from step to step.
Violation broken_lifetimes(const ExecutionGraph& graph);

/// The first violation of the tree, of nesting or of lifetimes: these hold for any source.
Violation broken_structure(const ExecutionGraph& source, const ExecutionGraph& result);

/// Written to a file and read again, the graph is the same.
Violation differs_when_read_back(const ExecutionGraph& graph);

/// Two graphs are the same up to ids: nodes in their order, and which tensors and storages are
/// one.
Violation difference_up_to_ids(const ExecutionGraph& first, const ExecutionGraph& second);

}  // namespace perfmodel::test_support
