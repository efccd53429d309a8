#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layout/layout_inputs.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

using TakeWarning = std::function<void(const std::string&)>;

/// The steps in what `inputs.measured` names. `asked`: the job that is asked about, whose model
/// rows without columns of their own and traces are of; nullptr: rows name their models. Errors:
/// files that cannot be read, a trace of another GPU or without products of the model, a machine's
/// file of another GPU.
Result<std::vector<MeasuredStep>> measured_steps(const LayoutInputs& inputs, const LayoutJob* asked,
                                                 const Gpu& gpu, const TakeWarning& warn);

/// The pricer of a machine, as measured steps say it is if the inputs name some.
Result<LayoutPricer> layout_pricer(const Predictor& predictor, const LayoutMachine& machine,
                                   const LayoutInputs& inputs, const LayoutJob* asked,
                                   const TakeWarning& warn);

}  // namespace perfmodel
