#pragma once

#include "trace/op_tables.hpp"

namespace perfmodel {

/// The least time that the peak of arithmetic and the bandwidth of memory allow for. Nothing for
/// work that crosses a link, which is bound by neither.
std::optional<double> least_us(const KernelWork& work, const Gpu& gpu);

/// Work of each op by the rule of its name and its recorded shapes. Rules ask the GPU which kernels
/// its libraries have: without a known one there is no work.
OpWorks op_works(const Trace& trace, const Gpu* gpu);

}  // namespace perfmodel
