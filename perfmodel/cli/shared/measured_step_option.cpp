#include "measured_step_option.hpp"

#include "arguments.hpp"
#include "base/duration_text.hpp"

namespace perfmodel::cli {
void add_measured_step(CommandParser app, TimedStep& measured, Option scale_host) {
  const Option step =
      app.add_option_function<std::string>(
             "--measured-step TIME",
             [&measured](const std::string& text) {
               measured.us = read_duration_us(text);
               if (measured.us) return;
               bad_usage("--measured-step",
                         "expected a time above 0 with its unit, as 5.1ms, found " + text);
             },
             "What a step took without a profiler, as 5.1ms: from it follows how fast the "
             "host is")
          .excludes(scale_host);
  app.add_option("--measured-on NAME", measured.gpu,
                 "The GPU of that step (default: that of --gpu)")
      .needs(step);
  app.add_option("--measured-batch N", measured.batch,
                 "Samples in that step (default: those of the graph)")
      .needs(step)
      .check(at_least(1));
}

}  // namespace perfmodel::cli
