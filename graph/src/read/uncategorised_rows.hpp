#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Names of processes by their ids, as metadata events of a trace tell them.
using ProcessNames = std::map<std::string, std::string, std::less<>>;

/// Moves events without a category to the kind that the name of their process implies
/// (data/names/rows.json): work of a device, calls, or rows that are not read. Processes that the
/// table does not know hold ops of the host. `rows` are positions in Trace::host, ascending, which
/// is still in the order of the file.
void place_uncategorised_rows(Trace& trace, const std::vector<std::size_t>& rows,
                              const ProcessNames& names);

}  // namespace perfmodel
