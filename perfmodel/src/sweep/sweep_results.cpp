#include "sweep_results.hpp"

namespace perfmodel::sweep {

const ResultFields<SweepReport> kSweepReportFields = {
    {"rows", &SweepReport::rows},
    {"chunks", &SweepReport::chunks},
    {"finished_before", &SweepReport::finished_before},
    {"predicted", &SweepReport::predicted},
    {"refused", &SweepReport::refused},
    {"too_large", &SweepReport::too_large},
    {"dropped", &SweepReport::foreign},
    {"made_twice", &SweepReport::repeated},
    {"torn_bytes", &SweepReport::torn_bytes},
    {"missing", &SweepReport::missing},
    {"missing_shards", &SweepReport::missing_shards},
    {"merged", &SweepReport::merged},
    {"warnings", &SweepReport::warnings},
};

}  // namespace perfmodel::sweep
