#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/trace_analysis.hpp"

/// Rows of the tables of a trace (docs/traces.md), as JSON, CSV and text have them.
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

}  // namespace perfmodel
