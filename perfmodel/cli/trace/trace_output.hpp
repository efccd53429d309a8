#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/trace_analysis.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What `trace` found in one file: what is in it, and where its time went.
struct TraceFindings {
  TraceReport report;
  TraceAnalysis analysis;
};

/// The keys of one trace, without those of the document.
Json trace_keys(const TraceFindings& found);

/// One screen, most telling first; `full` adds the tables that it leaves out. Tables have `top`
/// rows.
std::string trace_text(const TraceFindings& found, std::size_t top, bool full, bool bold);

/// Adds `ranks[]`, one entry with the keys of a trace per rank, and what they say together.
void add_ranks(Json& json, std::span<const TraceFindings> found, const TraceRanks& ranks);
std::string ranks_text(std::span<const TraceFindings> found, const TraceRanks& ranks,
                       std::size_t top, bool bold);

/// `before` and `after` are names of files.
Json comparison_json(const TraceComparison& comparison, const std::string& before,
                     const std::string& after);
std::string comparison_text(const TraceComparison& comparison, const std::string& before,
                            const std::string& after, std::size_t top, bool bold);

/// A prediction beside the trace in the file of that name.
Json against_json(const TraceComparison& comparison, const std::string& trace);
std::string against_text(const TraceComparison& comparison, const std::string& trace,
                         std::size_t top, bool bold);

/// One CSV file per table, in a folder that is made if need be.
Result<void> write_trace_tables(const TraceFindings& found, const std::string& folder);

}  // namespace perfmodel::cli
