#pragma once

#include <string>
#include <vector>

#include "kernels/nccl_log.hpp"

namespace perfmodel {

/// The time of the group's collective on a topology [us]. Error: what `collective_time` refuses.
Result<double> group_us(const Topology& topology, const MeasuredGroup& group, double bytes);

/// Says in sentences how the machine differs from a healthy one of that kind: ranges of sizes that
/// are 15 % or more off, then the one fault (a missing NIC, a link at half rate, another algorithm)
/// that explains the times, if one does. Empty: nothing. `group_us` must take the group.
std::vector<std::string> deviations(const Topology& healthy, const MeasuredGroup& group);

/// Whether some size would take so much longer with one NIC less that it would be named. If
/// links inside the nodes decide, none does.
bool shows_a_nic(const Topology& healthy, const MeasuredGroup& group);

}  // namespace perfmodel
