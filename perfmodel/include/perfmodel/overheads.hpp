#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/overhead_table.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Learns a table from one or several traces. A graph, if given, provides the ops, their nesting
/// and the devices of their tensors; otherwise times and names show them. Errors: a trace without
/// device activity, or without ops.
Result<OverheadTable> extract_overheads(std::span<const OverheadSource> sources,
                                        const OverheadOptions& options);

/// Multiplies all host figures; device figures stay.
void scale_host(OverheadTable& table, double factor);

/// Multiplies each term's figures by its own factor. `ops` stay, since they hold several terms.
void scale_terms(OverheadTable& table, const TermFactors& factors);

/// Puts back the cost of the trace's collectors (`OverheadTable::without_collector`).
OverheadTable as_recorded(OverheadTable table);

/// Count and mean over all calls; medians do not add up.
OverheadStats stats_of_all(const std::map<std::string, OverheadStats>& figures);

/// Total of a figure's samples, in microseconds.
double total_us(const OverheadStats& stats);
/// Ops of a table, most host time first.
std::vector<std::pair<std::string, OverheadStats>> ops_by_host_time(const OverheadTable& table);

Result<OverheadTable> read_overheads(const std::filesystem::path& file);
std::string overheads_json(const OverheadTable& table);
Result<void> write_overheads(const OverheadTable& table, const std::filesystem::path& file);

}  // namespace perfmodel
