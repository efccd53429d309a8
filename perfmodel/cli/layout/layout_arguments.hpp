#pragma once

#include "layout/layout_inputs.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// What all commands of `layout` take. Parts of a layout stand in `lists`, one value or several.
struct LayoutArguments : LayoutInputs {
  LayoutArguments() { reads_files = true; }

  bool json = false;
};

/// Adds the flags of the model, the machine, the job and the layout. `with_model`: the argument
/// MODEL too.
void add_layout_options(CommandParser app, LayoutArguments& arguments);

}  // namespace perfmodel::cli
