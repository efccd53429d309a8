#pragma once

#include <optional>
#include <span>

#include "job_tasks.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// Slows the kernels of each rank whose pass spends more energy than the board's limit feeds in its
/// time (power.hpp), so that it would take as long as it must. Whether there was one: the tasks
/// have to be made again then.
///
/// The mean over the whole step counts, since boards regulate over tens of milliseconds and layers
/// repeat within less: a memory-bound kernel or a gap lets the next product run faster. What a
/// lower clock costs falls on kernels by the energy of their arithmetic; traffic goes on as
/// before. Measured times stay, and ranks that ask for bursts. Where most of the arithmetic has an
/// energy that is an estimate, nothing slows: estimates bound the rates of kernels in their prices.
bool hold_to_power_limit(const JobTasks& tasks, std::span<RankProgram> programs);

/// Of the device in one step: idle power over the step, and what its kernels take beside. Empty
/// without a limit.
std::optional<double> step_energy_j(const Gpu& gpu, const HostProgram& program, double e2e_us);

}  // namespace perfmodel
