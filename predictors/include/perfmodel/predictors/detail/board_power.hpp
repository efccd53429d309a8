#pragma once

#include "perfmodel/predictors/gpu.hpp"

/// What a board's power limit leaves to work (power.hpp).
namespace perfmodel {

/// Board power that does no work [W], at least 15; 0 of a GPU without a limit.
double idle_power_w(const Gpu& gpu);

/// What the limit leaves to work [W]; 0 of a GPU without a limit.
double work_power_w(const Gpu& gpu);

/// Energy of a FLOP [pJ] as a share, by type, of what fp32 takes on vector units. `matrix_units`:
/// on those. 0: nobody knows.
double derived_picojoule_per_flop(const Gpu& gpu, DType dtype, bool matrix_units);

}  // namespace perfmodel
