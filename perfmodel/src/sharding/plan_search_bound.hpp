#pragma once

#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

/// No plan that fits is better than this; infinity: no plan fits.
///
/// If all ranks together had to bear the loads evenly and share their memory, each table would take
/// the option that costs least at some price of a byte, and any price gives a bound (Lagrange). A
/// plan of objective T has no shard larger than T, so the tables may only take options without
/// larger ones: the bound is the least T that is no smaller than the bound under that limit.
double lower_bound(const FlatSpace& space);

}  // namespace perfmodel::sharding::search
