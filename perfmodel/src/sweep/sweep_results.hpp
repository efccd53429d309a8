#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/sweep/run_sweep.hpp"

namespace perfmodel::sweep {

/// Figures of a run, as documents of `sweep` have them.
extern const ResultFields<SweepReport> kSweepReportFields;

}  // namespace perfmodel::sweep
