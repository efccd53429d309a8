#pragma once

#include "base/anonymize.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Pseudonyms in the place of names of users, hosts and addresses (base/anonymize.hpp) in
/// everything that an output can show: names of ops, kernels and labels, threads, process groups,
/// file names, warnings. Ranks and graphs of one job take the same `anonymizer`, so that equal
/// names stay equal.
void anonymize(Trace& trace, Anonymizer& anonymizer);
void anonymize(ExecutionGraph& graph, Anonymizer& anonymizer);

}  // namespace perfmodel
