#pragma once

#include <functional>

#include "perfmodel/detail/replay_options.hpp"
#include "perfmodel/detail/replay_result.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A replay at the requested scales next to the one as recorded: their difference is the effect of
/// the scales, and the latter gives the replay's error. `run` makes one replay; errors and medians
/// are filled in here. Errors: a scale below 0 or no number; a what-if on a replay that is off by
/// more than 10 % (`ReplayOptions::force`).
Result<Replay> replay_scaled(const ReplayOptions& options,
                             const std::function<Result<Replay>(const ReplayOptions&)>& run);

}  // namespace perfmodel
