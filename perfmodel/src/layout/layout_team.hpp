#pragma once

#include "perfmodel/layout.hpp"
#include "perfmodel/sweep/detail/team.hpp"

namespace perfmodel {

/// `rank_layouts` by all ranks of a team: each prices its shard, rank 0 searches all with these
/// prices and has the answer that it would have alone, to the byte. The other ranks get an empty
/// one, and no error: rank 0 meets it too.
Result<LayoutRanking> rank_layouts_together(const LayoutPricer& pricer, const LayoutJob& job,
                                            std::int64_t gpus, const LayoutSpace& space,
                                            const LayoutSearchOptions& options, sweep::Team& team);

}  // namespace perfmodel
