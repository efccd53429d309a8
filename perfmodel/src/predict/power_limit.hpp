#pragma once

#include <optional>
#include <span>

#include "job_tasks.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// Slows the kernels of each rank whose pass spends more energy than the board's limit feeds in its
/// time (power.hpp), until the limit suffices. Returns true if there was such a rank: then the
/// tasks must be made again.
///
/// The mean over the whole step counts, since boards regulate over tens of milliseconds and layers
/// repeat within less: a memory-bound kernel or a gap lets the next product run faster. A lower
/// clock slows kernels by the energy of their arithmetic; traffic keeps its speed. Measured times
/// stay, and so do ranks that ask for bursts. If most of the arithmetic has an estimated energy,
/// nothing slows: estimates bound the rates of kernels in their prices.
///
/// Boards differ in the power that equal work takes. In a job of several ranks the neediest one,
/// the expected largest of so many draws, sets the pace of all.
bool hold_to_power_limit(const JobTasks& tasks, std::span<RankProgram> programs);

/// Energy of the device in one step: idle power over the step plus the energy of its kernels. Empty
/// without a limit.
std::optional<double> step_energy_j(const Gpu& gpu, const HostProgram& program, double e2e_us);

}  // namespace perfmodel
