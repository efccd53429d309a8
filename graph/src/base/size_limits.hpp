#pragma once

#include <cstdint>

namespace perfmodel {

/// Layers of a model, whether it is built, laid out over GPUs or part of a study: each is some
/// hundred nodes, whoever asks for it.
inline constexpr std::int64_t kMostLayers = 1024;

/// Ranks of a job whose time is predicted.
inline constexpr std::int64_t kMostJobRanks = std::int64_t{1} << 20;

}  // namespace perfmodel
