#pragma once

#include <vector>

#include "layout_work.hpp"
#include "step_question.hpp"

namespace perfmodel {

struct StepTime {
  double step_us = 0, low_us = 0, high_us = 0;
  double terms_us[kLayoutTerms] = {};
};

/// One optimizer step of that work.
StepTime step_time(const StepQuestion& question, const LayoutWork& work);

/// The same of the layers of `chunks`. Errors: as `layout_work`.
Result<StepTime> step_time(const StepQuestion& question, const std::vector<ChunkLayers>& chunks);

}  // namespace perfmodel
