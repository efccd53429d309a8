#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/replay.hpp"

namespace perfmodel {

/// The members of a document of `replay`.
OrderedJson replay_json(const Replay& replay, const ReplayOptions& options);

}  // namespace perfmodel
