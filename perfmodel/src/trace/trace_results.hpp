#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/trace_analysis.hpp"

/// The answers of `trace` (docs/traces.md), as JSON, CSV and text have them.
namespace perfmodel {

extern const ResultFields<TraceAnalysis::Breakdown> kBreakdownFields;
extern const ResultFields<TraceAnalysis::Op> kOpFields;
extern const ResultFields<TraceAnalysis::Op> kShapedOpFields;  ///< with shapes
extern const ResultFields<TraceAnalysis::Collective> kCollectiveFields;
extern const ResultFields<TraceAnalysis::Copy> kCopyFields;
extern const ResultFields<TraceAnalysis::Counter> kCounterFields;
extern const ResultFields<TraceAnalysis::Module> kModuleFields;
extern const ResultFields<TraceReport::Kernel> kTopKernelFields;
extern const ResultFields<TraceReport::Stream> kStreamFields;

/// The content of one file, and the use of its time.
struct TraceFindings {
  TraceReport report;
  TraceAnalysis analysis;

  std::vector<std::string> warnings() const;
};

/// Iterations [first, last), counted from 0.
using TraceWindow = std::optional<std::pair<std::size_t, std::size_t>>;

/// With FLOP, bytes and rooflines if the GPU that the trace names is known, else with a warning.
/// Errors: fewer iterations than the window asks for; a GPU file that cannot be read.
Result<TraceFindings> trace_findings(const Trace& trace, const TraceWindow& window);
Result<std::vector<TraceFindings>> trace_findings(std::span<const Trace> traces,
                                                  const TraceWindow& window);

/// Compares the steps of two traces: the window, else all iterations, if there are any. Errors:
/// from `trace_findings` and of `compare`.
Result<TraceComparison> compare_traces(const Trace& before, const Trace& after,
                                       const TraceWindow& window);

/// An iteration with its share of the analysis.
struct TracedIteration {
  TraceReport::Iteration mark;
  TraceAnalysis::Split split;
};
std::vector<TracedIteration> traced_iterations(const TraceFindings& found);
/// The fields of the JSON of an iteration, and `busy_share`.
extern const ResultFields<TracedIteration> kTracedIterationColumns;

/// The members of a document about one trace.
OrderedJson trace_json(const TraceFindings& found);
/// The members of the first one; `ranks[]`, one entry with the members of a trace per rank; `job`,
/// the results over all of them.
OrderedJson trace_ranks_json(std::span<const TraceFindings> found, const TraceRanks& ranks);

struct NamedTable {
  std::string name, csv;
};
/// Every table of the document whole; tables without rows are left out.
std::vector<NamedTable> trace_tables(const TraceFindings& found);

}  // namespace perfmodel
