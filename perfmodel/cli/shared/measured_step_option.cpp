#include "measured_step_option.hpp"

#include <string_view>
#include <utility>

#include "arguments.hpp"
#include "base/decimal_number.hpp"

namespace perfmodel::cli {
namespace {

// "5.1ms" in microseconds.
std::optional<double> read_time(std::string_view text) {
  const std::size_t unit = text.find_first_not_of("0123456789.");
  double number = 0;
  if (unit == text.npos || !read_decimal(text.substr(0, unit), number) || !(number > 0)) return {};
  std::string_view name = text.substr(unit);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const std::pair<std::string_view, double> units[] = {
      {"us", 1}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}};
  for (const auto& [known, us] : units) {
    if (name == known) return number * us;
  }
  return {};
}

}  // namespace

void add_measured_step(CommandParser app, TimedStep& measured, Option scale_host) {
  const Option step =
      app.add_option_function<std::string>(
             "--measured-step",
             [&measured](const std::string& text) {
               measured.us = read_time(text);
               if (measured.us) return;
               bad_usage("--measured-step",
                         "expected a time above 0 with its unit, as 5.1ms, found " + text);
             },
             "What a step took without a profiler, as 5.1ms: from it follows how fast the "
             "host is")
          .excludes(scale_host)
          .type_name("TIME");
  app.add_option("--measured-on", measured.gpu, "The GPU of that step (default: that of --gpu)")
      .needs(step)
      .type_name("NAME");
  app.add_option("--measured-batch", measured.batch,
                 "Samples in that step (default: those of the graph)")
      .needs(step)
      .check(at_least(1))
      .type_name("N");
}

}  // namespace perfmodel::cli
