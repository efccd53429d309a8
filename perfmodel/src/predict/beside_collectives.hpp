#pragma once

#include <span>

#include "job_tasks.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// Lengthens the kernels that run during a collective of their own rank, by the part of the GPU
/// that the collective takes. True if there are such kernels: then the tasks must be made again.
///
///     added = overlap * share
///     share = blocks * 640 / 2048 / SMs  [+ (bytes read + bytes written) / (t * DRAM bandwidth)]
///
/// NCCL runs one block of up to 640 of the 2,048 threads of an SM per channel: two for each ring of
/// the topology, or its NVLS channels. The second summand holds for kernels that DRAM bounds; t is
/// the collective's own time [us]. `overlap` [us] comes from the schedule without this slowdown: in
/// the time that a collective takes, kernels lose the share whatever their order.
///
/// Measured times stay, since they include what ran meanwhile, and sends and receives slow
/// nothing. The share was not fitted. The same kernels within public A100 traces lost 3.6 % to
/// 8 blocks (4 % here) and 9.6 % to 24 (7 to 10 % here), means weighted by time.
bool slow_beside_collectives(const JobTasks& tasks, std::span<RankProgram> programs);

}  // namespace perfmodel
