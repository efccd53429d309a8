#include "perfmodel/detail/match_step.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/predict.hpp"
#include "rewrites/model_batch.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {
namespace {

constexpr double kMostScale = 30, kTolerance = 1e-4;

class StepSearch {
 public:
  using Predict = std::function<Result<Prediction>(const StepScales&)>;

  StepSearch(double measured_us, const Predict& predict)
      : measured_us_(measured_us), predict_(predict) {}

  Result<StepScales> run() {
    PERFMODEL_TRY(first, predict_({}));
    constexpr double kBoundByGpu = 0.9;
    const bool by_gpu = first->gpu_active_us >= kBoundByGpu * first->e2e_us;
    const bool longer = first->e2e_us < measured_us_;
    for (const bool both : {false, true}) {
      const auto scales_at = [&](double scale) {
        return StepScales{.host = both || !by_gpu ? scale : 1,
                          .device = both || by_gpu ? scale : 1};
      };
      PERFMODEL_TRY(found, solve(scales_at, longer));
      if (*found) return **found;
    }
    return decline(
        fmt::format("expected a step that the program can take, found {} us: {} us are predicted, "
                    "of which collectives and waits stay as they are",
                    measured_us_, first->e2e_us));
  }

 private:
  // The step grows with the scale: the interval around the measured step is halved.
  template <class ScalesAt>
  Result<std::optional<StepScales>> solve(ScalesAt scales_at, bool longer) {
    double low = longer ? 1 : 1 / kMostScale, high = longer ? kMostScale : 1;
    PERFMODEL_TRY(end, predict_(scales_at(longer ? high : low)));
    if (longer ? end->e2e_us < measured_us_ : end->e2e_us > measured_us_) {
      return std::optional<StepScales>();
    }
    constexpr int kMostHalvings = 40;
    for (int i = 0; i < kMostHalvings; ++i) {
      const double scale = std::sqrt(low * high);
      PERFMODEL_TRY(at, predict_(scales_at(scale)));
      const double ratio = at->e2e_us / measured_us_;
      if (std::abs(ratio - 1) <= kTolerance) return std::optional(scales_at(scale));
      (ratio < 1 ? low : high) = scale;
    }
    return std::optional(scales_at(std::sqrt(low * high)));
  }

  double measured_us_;
  const Predict& predict_;
};

}  // namespace

Result<StepScales> match_step(double measured_us,
                              const std::function<Result<Prediction>(const StepScales&)>& predict) {
  if (!(measured_us > 0) || std::isinf(measured_us)) {
    return decline(fmt::format("expected a measured step above 0 us, found {}", measured_us));
  }
  return StepSearch(measured_us, predict).run();
}

Result<StepScales> match_measured(const TimedStep& measured, const RecordedProgram& program,
                                  const WhatIfTarget& target) {
  Gpu gpu = target.gpu;
  if (!measured.gpu.empty()) {
    PERFMODEL_TRY(data, find_data_folder());
    PERFMODEL_TRY(found, find_gpu(measured.gpu, *data / "gpus"));
    gpu = std::move(*found);
  }
  std::optional<ExecutionGraph> resized;
  if (measured.batch > 0) {
    auto built = model_with_batch(program.graph, measured.batch);
    PERFMODEL_TRY(made, built ? *built : set_batch_size(program.graph, {.batch = measured.batch}));
    resized = std::move(*made);
  }
  const ExecutionGraph& graph = resized ? *resized : program.graph;
  PredictOptions options = target.options;
  options.keep_ops = options.keep_calls = options.step_range = options.host_sensitivity = false;
  options.what_if_steps = 0;
  std::optional<MovedKernelTimes> times;
  if (program.trace && gpu.name != target.gpu.name) {
    PERFMODEL_TRY(moved, kernel_times_on(program.graph, *program.trace, gpu));
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

}  // namespace perfmodel
