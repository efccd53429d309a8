#pragma once

#include "perfmodel/detail/match_step.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `--measured-step TIME`, `--measured-on GPU`, `--measured-batch N`. What multiplies the host's
/// time (`scale_host`) contradicts it.
void add_measured_step(CommandParser app, TimedStep& measured, Option scale_host);

}  // namespace perfmodel::cli
