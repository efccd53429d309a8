#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy_support.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {
namespace traces_as_graphs_test {

double sum(const std::vector<TraceComparison::Term>& terms, double TraceComparison::Term::*side) {
  double all = 0;
  for (const auto& term : terms) all += term.*side;
  return all;
}

// The parts of a step add up to it, measured and predicted, by terms and by ops.
void check_sums(const TraceComparison& against, double wall_us, const Prediction& prediction) {
  using Term = TraceComparison::Term;
  EXPECT_NEAR(against.step_before_us, wall_us, 1e-3);
  EXPECT_NEAR(against.step_after_us, prediction.e2e_us, 1e-3);
  for (const auto* terms : {&against.terms, &against.host_terms}) {
    EXPECT_NEAR(sum(*terms, &Term::before_us), against.step_before_us, 0.01);
    EXPECT_NEAR(sum(*terms, &Term::after_us), against.step_after_us, 0.01);
  }
  // Time that is not idle is active; by-kind unions are rounded to nanoseconds.
  EXPECT_NEAR(against.step_after_us - against.terms.back().after_us, prediction.gpu_active_us, 1);
  const auto wait = std::ranges::find(against.host_terms, "wait", &Term::name);
  ASSERT_NE(wait, against.host_terms.end());
  double host_before = 0, host_after = 0, device_before = 0, device_after = 0;
  for (const auto& op : against.ops) {
    host_before += op.host_before_us;
    host_after += op.host_after_us;
    device_before += op.before_us;
    device_after += op.after_us;
  }
  EXPECT_NEAR(host_before + wait->before_us, against.step_before_us, 0.01);
  EXPECT_NEAR(host_after + wait->after_us, against.step_after_us, 0.01);
  EXPECT_NEAR(device_after, prediction.kernel_sum_us, 0.01);
  for (const auto& family : against.families) {
    device_before -= family.before_us;
    device_after -= family.after_us;
  }
  EXPECT_NEAR(device_before, 0, 0.01);
  EXPECT_NEAR(device_after, 0, 0.01);
}

// A Kineto trace alone, its own host and its own kernel times: tests the schedule of the graph that
// was made from it. Measured step and GPU time come from the same trace.
TEST(TracesAsGraphs, StepsOfDlrmFromTheTraceAlone) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA does not name the public data";
  const auto data = find_data_folder();
  ASSERT_TRUE(data);
  const auto gpu = find_gpu("v100-sxm2-32gb", *data / "gpus");
  ASSERT_TRUE(gpu);
  for (const std::string rank : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(rank);
    const auto trace = read_trace(std::filesystem::path(folder) / "traces" /
                                  ("dlrm_v100_rank" + rank + "of8_kineto.json.gz"));
    ASSERT_TRUE(trace);
    const auto made = graph_from_trace(*trace);
    ASSERT_TRUE(made) << made.error().message;
    const OverheadSource source{.trace = &*trace, .graph = &made->graph};
    const auto table = extract_overheads(std::span(&source, 1), {});
    ASSERT_TRUE(table) << table.error().message;
    const auto times = kernel_times(made->graph, *trace);
    ASSERT_TRUE(times) << times.error().message;
    const auto prediction = predict(made->graph, *gpu, *table, {.kernel_times = &*times});
    ASSERT_TRUE(prediction) << prediction.error().message;
    const auto measured = report(*trace);
    ASSERT_TRUE(measured);
    const double step = prediction->e2e_us / measured->iterations.at(0).wall_us - 1;
    const double active = prediction->gpu_active_us / measured->iterations.at(0).gpu_busy_us - 1;
    std::printf("DLRM rank %s: step %+.2f %%, GPU %+.2f %%\n", rank.c_str(), 100 * step,
                100 * active);
    EXPECT_LT(std::abs(step), 0.02);
    EXPECT_LT(std::abs(active), 0.05);
    const auto against = compare(*trace, *prediction);
    ASSERT_TRUE(against) << against.error().message;
    check_sums(*against, measured->iterations.at(0).wall_us, *prediction);
  }
}

struct Alone {
  Trace trace;
  Prediction prediction;
};

// As `predict TRACE` does it: own host, and own times of kernels that no model can price.
Alone predicted_alone(const std::string& file, const std::string& gpu) {
  auto program =
      read_recorded_program(*accuracy::public_data() / "traces" / (file + "_kineto.json.gz"))
          .value();
  const OverheadSource source{.trace = program.trace.get(), .graph = &program.graph};
  const OverheadTable table = extract_overheads(std::span(&source, 1), {}).value();
  const auto moved = kernel_times_on(program.graph, *program.trace, accuracy::gpu(gpu)).value();
  Alone made{*program.trace, predict(program.graph, accuracy::gpu(gpu), table,
                                     {.kernel_times = &moved.times,
                                      .use = moved.use,
                                      .models = &accuracy::learned_models(),
                                      .keep_ops = false})
                                 .value()};
  return made;
}

// A rank of eight, whose collectives wait for the other seven. Models price all but those.
TEST(TracesAsGraphs, StepsOfDlrmRanksWithWhatTheyWaitForOthers) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const std::string rank : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(rank);
    const std::string file = "dlrm_v100_rank" + rank + "of8";
    const Alone made = predicted_alone(file, "v100-sxm2-32gb");
    const double measured = accuracy::truth_of(made.trace, 0).wall_us;
    const double error = made.prediction.e2e_us / measured - 1;
    ASSERT_TRUE(made.prediction.recorded_waits);
    const auto [waiting, without] = *made.prediction.recorded_waits;
    std::printf("DLRM rank %s: step %+.2f %%, of it %.3f ms of waiting; %+.1f %% without\n",
                rank.c_str(), 100 * error, waiting / 1e3, 100 * (without / measured - 1));
    EXPECT_LT(std::abs(error), 0.01);
    EXPECT_LT(without, made.prediction.e2e_us);
    const Alone moved = predicted_alone(file, "h100-sxm-80gb");
    ASSERT_TRUE(moved.prediction.recorded_waits);
    EXPECT_NEAR(moved.prediction.recorded_waits->waiting_us, waiting, 1e-6 * waiting);
    EXPECT_LT(moved.prediction.recorded_waits->step_without_us, moved.prediction.e2e_us);
  }
}

// Per step, summed.
double measured_kernels_us(const Trace& trace) {
  double us = 0;
  for (const GpuEvent& event : trace.gpu) us += static_cast<double>(event.duration_ns) / 1e3;
  return us / static_cast<double>(iterations(trace).size());
}

// With models for the kernels that they know and times of the trace for the rest, on the GPU of the
// trace. The traces are from PyTorch 2.11 without values of arguments, like traces of PyTorch
// before 2.1: they do not say the stride of a convolution, nor whether TF32 is allowed (it was
// not), which is why ResNet-50 is 30 % too fast.
TEST(TracesAsGraphs, KernelsOfTheH200WithoutValuesOfArguments) {
  const auto folder =
      std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data/measurements/h200-sxm-141gb";
  const Gpu gpu = accuracy::gpu("h200-sxm-141gb");
  double errors = 0;
  int count = 0;
  for (const char* name :
       {"bert-base-384.bf16-b8", "dlrm-ddp-b512", "dlrm-default-b512", "dlrm-mlperf-b512",
        "gpt2-small-512.sdpa-flash-b4", "inception-v3-b4", "lstm-512x2-b32", "resnet50-b16",
        "resnet50.bf16-b16", "transformer-base-b4"}) {
    const auto program = read_recorded_program(folder / (std::string(name) + ".kineto.json.gz"));
    ASSERT_TRUE(program) << to_string(program.error());
    const OverheadSource source{.trace = program->trace.get(), .graph = &program->graph};
    const OverheadTable table = extract_overheads(std::span(&source, 1), {}).value();
    const auto moved = kernel_times_on(program->graph, *program->trace, gpu).value();
    const Prediction prediction = predict(program->graph, gpu, table,
                                          {.kernel_times = &moved.times,
                                           .use = moved.use,
                                           .models = &accuracy::learned_models(),
                                           .keep_ops = false})
                                      .value();
    const double predicted = prediction.kernel_sum_us;
    const double error = predicted / measured_kernels_us(*program->trace) - 1;
    std::printf("%-30s %+6.1f %%\n", name, 100 * error);
    EXPECT_GT(prediction.coverage.traced_kernels, 0U) << name;
    errors += std::abs(error);
    ++count;
  }
  std::printf("mean %.1f %%\n", 100 * errors / count);
  EXPECT_LT(errors / count, 0.18);
}

double median_of_steps(const Trace& trace, double most_loading_us) {
  std::vector<double> walls;
  const auto steps = iterations(trace);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const accuracy::Truth truth = accuracy::truth_of(trace, i);
    if (truth.loader_us <= most_loading_us) walls.push_back(truth.wall_us);
  }
  std::ranges::sort(walls);
  EXPECT_GE(walls.size(), 8U);
  return walls[walls.size() / 2];
}

// The data loader's workers hold most steps of the ResNet-18 recording for up to 750 ms, which is
// no work of the host's. Steps that waited for them for 1 ms at the most tell what the program
// takes.
TEST(TracesAsGraphs, StepOfResNet18FromTheTraceAlone) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Alone made = predicted_alone("resnet18", "rtx-2080-ti");
  const double measured = median_of_steps(made.trace, 1000);
  std::printf("ResNet-18: %.0f us, measured %.0f\n", made.prediction.e2e_us, measured);
  EXPECT_LT(std::abs(made.prediction.e2e_us / measured - 1), 0.02);
}

// Two recordings without shapes: what each op launches is known by its id or its place in the step.
TEST(TracesAsGraphs, StepsOfTracesWithoutShapes) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& [file, gpu] :
       {std::pair("linear", "rtx-2080-ti"), std::pair("resnet50_ddp_2gpu_a100", "a100-sxm-40gb")}) {
    const Alone made = predicted_alone(file, gpu);
    const auto measured = report(made.trace);
    ASSERT_TRUE(measured);
    double wall = 0, busy = 0;
    for (const auto& step : measured->iterations) {
      wall += step.wall_us;
      busy += step.gpu_busy_us;
    }
    const double steps = static_cast<double>(measured->iterations.size());
    std::printf("%s: step %.0f us, measured %.0f; GPU %.0f, measured %.0f\n", file,
                made.prediction.e2e_us, wall / steps, made.prediction.gpu_active_us, busy / steps);
    EXPECT_LT(std::abs(made.prediction.e2e_us / (wall / steps) - 1), 0.02);
    EXPECT_LT(std::abs(made.prediction.gpu_active_us / (busy / steps) - 1), 0.05);
  }
}

// Kernels that models price, in place of those that were traced.
TEST(TracesAsGraphs, KernelsOfBertByModels) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Alone made = predicted_alone("bert_small_infer_h100_torch26", "h100-sxm-80gb");
  const accuracy::Truth truth = accuracy::truth_of(made.trace, 0);
  std::printf("BERT: GPU %.0f us, measured %.0f; step %.0f, measured %.0f\n",
              made.prediction.gpu_active_us, truth.gpu_active_us, made.prediction.e2e_us,
              truth.wall_us);
  EXPECT_LT(std::abs(made.prediction.gpu_active_us / truth.gpu_active_us - 1), 0.2);
  EXPECT_LT(std::abs(made.prediction.e2e_us / truth.wall_us - 1), 0.02);
}

}  // namespace traces_as_graphs_test
}  // namespace perfmodel
