#pragma once

#include "trace/op_tables.hpp"

namespace perfmodel {

/// Work of each op by the rule of its name and its recorded shapes. Rules ask the GPU which kernels
/// its libraries have: without a known one there is no work.
OpWorks op_works(const Trace& trace, const Gpu* gpu);

}  // namespace perfmodel
