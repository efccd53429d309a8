#include "measured_step_option.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "arguments.hpp"
#include "base/decimal_number.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/predict.hpp"
#include "trace/moved_kernel_times.hpp"

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

void add_measured_step(CLI::App& app, TimedStep& measured, CLI::Option* scale_host) {
  auto* step = app.add_option_function<std::string>(
                      "--measured-step",
                      [&measured](const std::string& text) {
                        measured.us = read_time(text);
                        if (measured.us) return;
                        throw CLI::ValidationError(
                            "--measured-step",
                            "expected a time above 0 with its unit, as 5.1ms, found " + text);
                      },
                      "What a step took without a profiler, as 5.1ms: from it follows how fast the "
                      "host is")
                   ->excludes(scale_host)
                   ->type_name("TIME");
  app.add_option("--measured-on", measured.gpu, "The GPU of that step (default: that of --gpu)")
      ->needs(step)
      ->type_name("NAME");
  app.add_option("--measured-batch", measured.batch,
                 "Samples in that step (default: those of the graph)")
      ->needs(step)
      ->check(at_least(1))
      ->type_name("N");
}

Result<StepScales> match_measured(const TimedStep& measured, const RecordedProgram& program,
                                  const WhatIfTarget& target) {
  Gpu gpu = target.gpu;
  if (!measured.gpu.empty()) {
    const auto data = find_data_folder();
    if (!data) return Unexpected{data.error()};
    auto found = find_gpu(measured.gpu, *data / "gpus");
    if (!found) return Unexpected{found.error()};
    gpu = std::move(*found);
  }
  std::optional<ExecutionGraph> resized;
  if (measured.batch > 0) {
    auto made = set_batch_size(program.graph, {.batch = measured.batch});
    if (!made) return Unexpected{made.error()};
    resized = std::move(*made);
  }
  const ExecutionGraph& graph = resized ? *resized : program.graph;
  PredictOptions options = target.options;
  options.keep_ops = options.keep_calls = options.step_range = options.host_sensitivity = false;
  options.what_if_steps = 0;
  std::optional<MovedKernelTimes> times;
  if (program.trace && gpu.name != target.gpu.name) {
    auto moved = kernel_times_on(program.graph, *program.trace, gpu);
    if (!moved) return Unexpected{moved.error()};
    times = std::move(*moved);
    options.kernel_times = &times->times;
    options.use = times->use;
  }
  return match_step(*measured.us, [&](const StepScales& scales) {
    options.host_scale = scales.host;
    options.device_scale = scales.device;
    return predict(graph, gpu, *target.overheads, options);
  });
}

std::string measured_sentence(const TimedStep& measured, const StepScales& scales) {
  std::string text = fmt::format("the measured step of {:.3f} ms", *measured.us / 1e3);
  if (!measured.gpu.empty()) text += " on " + measured.gpu;
  if (scales.device == 1) {
    return fmt::format(
        "{} says that the host's work takes {:.3f} times what was assumed: so it is "
        "taken to be everywhere",
        text, scales.host);
  }
  if (scales.host == 1) {
    return fmt::format(
        "{} is bound by the GPU and says nothing of the host: kernels are taken to "
        "last {:.3f} times as long as predicted",
        text, scales.device);
  }
  return fmt::format(
      "{} is explained by neither host nor kernels alone: both are taken to last "
      "{:.3f} times as long",
      text, scales.host);
}

}  // namespace perfmodel::cli
