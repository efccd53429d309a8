#pragma once

#include <string>

#include "layout_arguments.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// The machine of `pricer` as `--measured` says it is. `asked`: the job that is asked about, whose
/// model rows without columns of their own and traces are of; nullptr: rows name their models.
/// Errors: files that cannot be read, a trace of another GPU or without products of the model, a
/// machine's file of another GPU.
Result<LayoutPricer> measured_pricer(const LayoutPricer& pricer, const LayoutArguments& arguments,
                                     const LayoutJob* asked, const Gpu& gpu);

/// Fits a machine to the steps of `--measured`, reports it, and writes it to `output` if named.
Result<void> calibrate_machine(const LayoutArguments& arguments, const std::string& output);

Json measured_json(const MeasuredFit& fit);

}  // namespace perfmodel::cli
