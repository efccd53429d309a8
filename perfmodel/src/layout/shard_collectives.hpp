#pragma once

#include <cstdint>

#include "shard_costs.hpp"
#include "step_question.hpp"

namespace perfmodel {

/// Puts other times of the same collectives into a shard's passes: collectives of a kind take the
/// time of their mean buffer among `tp` ranks side by side. Errors: as `collectives`.
Result<void> reprice_collectives(std::int64_t tp, CollectiveTimes& collectives, ShardCosts& costs);

}  // namespace perfmodel
