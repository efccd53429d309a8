#pragma once

#include "perfmodel/predictors/gpu.hpp"

/// The power that a board's limit leaves to work (power.hpp).
namespace perfmodel {

/// Board power that does no work [W], at least 15; 0 for a GPU without a limit.
double idle_power_w(const Gpu& gpu);

/// Power that the limit leaves to work [W]; 0 for a GPU without a limit.
double work_power_w(const Gpu& gpu);

/// Energy of a FLOP [pJ], derived from fp32 on vector units by a factor per type. `matrix_units`:
/// on matrix units. 0: unknown.
double derived_picojoule_per_flop(const Gpu& gpu, DType dtype, bool matrix_units);

}  // namespace perfmodel
