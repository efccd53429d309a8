#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

inline constexpr double kMostZipfExponent = 10;

/// The indices of all lookups in embedding tables, and of their backward passes, follow Zipf's law:
/// row k is read with a probability proportional to k^-exponent; 0: all rows alike. A graph does
/// not tell which rows were read, only how many: without this rewrite all are alike. Kept in
/// Node::index_zipf_exponent and in the file; caches and distinct rows are priced accordingly
/// (docs/embedding.md).
///
/// Errors: an exponent that is no number from 0 to kMostZipfExponent, a graph without lookups.
Result<ExecutionGraph> set_index_skew(const ExecutionGraph& graph, double exponent);

}  // namespace perfmodel
