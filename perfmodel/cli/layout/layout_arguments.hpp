#pragma once

#include "jobs/read_job.hpp"
#include "layout/layout_inputs.hpp"
#include "layout/training_run.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// What all commands of `layout` take. Parts of a layout stand in `lists`, one value or several.
struct LayoutArguments : LayoutInputs {
  LayoutArguments() { reads_files = true; }

  TrainingRunAsk run;  ///< `rank` and `eval` take it
  std::string job;     ///< a trainer's file; the model may be one instead
  GivenFields given;   ///< fields that flags name
  bool json = false;
};

/// Adds the argument MODEL and the flags of the model, the machine, the job and the layout.
void add_layout_question(CommandParser app, LayoutArguments& arguments);

/// The same with measured steps that calibrate, and --json.
void add_layout_options(CommandParser app, LayoutArguments& arguments);

/// The fields of the question that flags of the command name, with their values.
GivenFields given_fields(CommandParser app);

/// Adds the flags of a whole run of training.
void add_run_options(CommandParser app, TrainingRunAsk& run);

}  // namespace perfmodel::cli
