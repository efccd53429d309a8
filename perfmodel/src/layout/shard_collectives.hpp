#pragma once

#include <cstdint>

#include "shard_costs.hpp"
#include "step_question.hpp"

namespace perfmodel {

/// Puts other times of the same collectives into a shard's passes: those of a kind take what their
/// mean buffer takes among `tp` ranks side by side. Errors: those of `collectives`.
Result<void> reprice_collectives(std::int64_t tp, CollectiveTimes& collectives, ShardCosts& costs);

}  // namespace perfmodel
