#include "sweep_results.hpp"

namespace perfmodel::sweep {

const ResultFields<SweepReport> kSweepReportFields = {
    PERFMODEL_FIELDS(SweepReport, rows, chunks, finished_before, predicted, refused, too_large),
    {"dropped", &SweepReport::foreign},
    {"made_twice", &SweepReport::repeated},
    PERFMODEL_FIELDS(SweepReport, torn_bytes, missing, missing_shards, merged, warnings),
};

}  // namespace perfmodel::sweep
