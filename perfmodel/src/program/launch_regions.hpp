#pragma once

#include <cstddef>

#include "host_program.hpp"
#include "perfmodel/graph/detail/launching.hpp"

namespace perfmodel {

/// Stretches of a program that the host launches otherwise than op by op.
struct LaunchRegions {
  std::size_t regions = 0, launches = 0;  ///< launches: of kernels, copies and sets in them
};

/// The launch of a captured graph takes as long as one in `table`, else as one kernel's launch, and
/// 1 ns per node more (NVIDIA, "Constant time launch for straight-line CUDA graphs", 2024, has 2.5
/// us + 1 ns per node).
double graph_launch_us(const OverheadTable& table, std::size_t nodes);

/// Rewrites the host's side of `program` for another way to launch. A region is a longest run of
/// ops of one step in which no call waits for the device; it has two launches at the least. In it
///
/// - of the host's own work the gap in front of its first op is left;
/// - with captured graphs, one launch of the graph replaces all launches;
/// - compiled, each launch keeps its own time.
///
/// Kernels, streams and waits stay as they are.
LaunchRegions launch_by_regions(const OverheadTable& table, Launching launching,
                                HostProgram& program);

}  // namespace perfmodel
