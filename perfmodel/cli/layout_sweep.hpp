#pragma once

#include <string>
#include <vector>

#include "layout_arguments.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/result.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

struct LayoutSweepArguments {
  std::string axis, csv;
  std::vector<std::string> values;
};

void add_layout_sweep_options(CLI::App& app, LayoutSweepArguments& arguments);

/// The best layout at each value of one input. A value at which nothing is possible is a row with
/// its reason. Errors: values that the axis cannot take, nothing possible at any value.
Result<void> sweep_layouts(const Predictor& predictor, const LayoutArguments& arguments,
                           const LayoutSweepArguments& sweep);

}  // namespace perfmodel::cli
