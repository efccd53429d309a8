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

/// Learns a table from one or several traces. With a graph the ops, their nesting and the devices
/// of their tensors come from it; without, all is found by time and names. Fails if a trace has no
/// device activity, or no op at all.
Result<OverheadTable> extract_overheads(std::span<const OverheadSource> sources,
                                        const OverheadOptions& options);

/// Multiplies all host figures; those of the device stay.
void scale_host(OverheadTable& table, double factor);

/// Multiplies the figures of each term by a factor of its own. `ops` stay: they hold several terms.
void scale_terms(OverheadTable& table, const TermFactors& factors);

/// The table with what its collectors added (`OverheadTable::without_collector`).
OverheadTable as_recorded(OverheadTable table);

/// Count and mean of all calls together; medians do not add up.
OverheadStats stats_of_all(const std::map<std::string, OverheadStats>& figures);

/// Microseconds that the samples of a figure take together.
double total_us(const OverheadStats& stats);
/// Ops of a table with most host time first.
std::vector<std::pair<std::string, OverheadStats>> ops_by_host_time(const OverheadTable& table);

Result<OverheadTable> read_overheads(const std::filesystem::path& file);
std::string overheads_json(const OverheadTable& table);
Result<void> write_overheads(const OverheadTable& table, const std::filesystem::path& file);

}  // namespace perfmodel
