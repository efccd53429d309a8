#pragma once

#include <string>

#include "fields/result_field.hpp"
#include "perfmodel/detail/trace_comparison.hpp"

/// Rows of a comparison (docs/traces.md), as JSON and text have them.
namespace perfmodel {

extern const ResultFields<TraceComparison::Term> kTermChangeFields;
extern const ResultFields<TraceComparison::Change> kOpChangeFields, kKernelChangeFields;
/// A prediction next to the measured step.
extern const ResultFields<TraceComparison::Term> kTermErrorFields;
extern const ResultFields<TraceComparison::Change> kOpErrorFields, kFamilyErrorFields;

/// `before` and `after` are names of files.
OrderedJson comparison_json(const TraceComparison& comparison, const std::string& before,
                            const std::string& after);
/// A prediction next to the trace in the file of that name.
OrderedJson against_json(const TraceComparison& comparison, const std::string& trace);

/// "+1.234"
std::string signed_milliseconds(double us);

}  // namespace perfmodel
