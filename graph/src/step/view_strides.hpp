#pragma once

#include <cstdint>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// Strides [elements] of the views of a step; empty for other tensors. A graph holds strides only
/// in the arguments of as_strided, in which all views end.
FactsOfValues<std::vector<std::int64_t>> strides_of_views(const StepView& step);
/// The same, and the results of pointwise ops and casts on views: dense, with the axes in memory in
/// the order of their first input.
FactsOfValues<std::vector<std::int64_t>> strides_in_memory(const StepView& step);

}  // namespace perfmodel
