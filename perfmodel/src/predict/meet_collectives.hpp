#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// Finds the collectives that several ranks enter together: each such meeting gets a number, and
/// all its ranks move data for the same time. A traced duration holds waiting for later ranks, so
/// the shortest one is nearest to it; of predictions the longest counts. Returns the number of
/// meetings. `missing`: a collective that a rank lacks is no error. Errors: see match_collectives.
Result<std::int32_t> meet_collectives(std::span<RankProgram> ranks, bool missing,
                                      std::vector<std::string>& warnings);

/// The prices that ranks of one collective agree on: the time of each becomes the common one, and
/// its range holds that.
void agree_on_time(std::span<Price* const> prices);

}  // namespace perfmodel
