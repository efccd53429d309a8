#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perfmodel/sharding/detail/torchrec_plan.hpp"

/// Plans and their figures in words.
namespace perfmodel::sharding {

/// "3.65 ms", "812 us".
std::string time_text(double us);
std::string bytes_text(double bytes);
/// "16.51 M/s".
std::string samples_text(double per_second);

/// "0-7", "0 3 5", "all".
std::string ranks_text(const TablePlacement& placement, std::int64_t world);

/// "distinct ids, 2-byte wire, 10,000 hot rows, cache 5 %"; empty: as the table says.
std::string settings_of(const TablePlacement& placement);
/// "2-byte wire for 12 of 26 tables, distinct ids for 3"; empty: all tables are as they say.
std::string chosen_settings(std::span<const TablePlacement> placements);

/// "9 table_wise, 2 row_wise", or "9 TW, 2 RW" if it is short.
std::string types_text(std::span<const TablePlacement> placements, bool is_short);

/// "9 table_wise, 2 row_wise, 3 cached; distinct ids for 3 of 11 tables"
std::string plan_words(std::span<const TablePlacement> placements);

}  // namespace perfmodel::sharding
