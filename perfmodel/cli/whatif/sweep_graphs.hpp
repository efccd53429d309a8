#pragma once

#include "perfmodel/sweep/detail/sweep_spec.hpp"

namespace perfmodel::cli {

/// The builders of `perfpredict build` and the flags of rewrites, for the spec of a sweep.
sweep::GraphToolbox sweep_toolbox();

}  // namespace perfmodel::cli
