#pragma once

namespace perfmodel {

/// Time in the data loader between two ops: from this on it is the loader's, not the host's.
inline constexpr double kLoaderPauseUs = 1000;

}  // namespace perfmodel
