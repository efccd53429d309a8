#pragma once

#include "trace/op_tables.hpp"

namespace perfmodel {

/// Work of each op by the rule of its name and its recorded shapes. Without `gpu` there are no
/// rooflines.
OpWorks op_works(const Trace& trace, const Gpu* gpu);

}  // namespace perfmodel
