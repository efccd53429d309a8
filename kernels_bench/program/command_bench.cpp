#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "commands.hpp"
#include "gpu_of.hpp"
#include "open_device.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/command_parser.hpp"

namespace kernels_bench {
namespace {

using perfmodel::ErrorCode;
using perfmodel::fail;
using perfmodel::Result;

struct Arguments {
  std::string backend = "auto";
  std::vector<std::string> families;
  int device = 0;
  std::size_t points = 20;
  std::uint64_t seed = 1;
  CommandParser app;
};

constexpr int kIterations = 10;

// One measurement gives all the iterations: the device times itself.
void measure(benchmark::State& state, Device& device, const perfmodel::Gpu& gpu,
             const Case& point) {
  const MeasureOptions options{.min_repetitions = kIterations, .max_repetitions = kIterations};
  auto measured = device.measure(point, options);
  if (!measured) {
    state.SkipWithError(measured.error().message.c_str());
    return;
  }
  std::size_t next = 0;
  for (auto _ : state) {
    state.SetIterationTime(measured->times_us[next++ % measured->times_us.size()] * 1e-6);
  }
  std::ranges::sort(measured->times_us);
  const auto& times = measured->times_us;
  state.counters["p10_us"] = times[times.size() / 10];
  state.counters["p90_us"] = times[times.size() * 9 / 10];
  const perfmodel::KernelWork work = work_of(point, gpu);
  const double median = times[times.size() / 2];
  if (work.bytes().value > 0) state.counters["GB/s"] = work.bytes().value / median * 1e-3;
  if (work.flop.value > 0) state.counters["TFLOP/s"] = work.flop.value / median * 1e-6;
}

Result<void> run(Arguments& arguments) {
  const auto families = families_of(arguments.families);
  if (!families) return tl::unexpected(families.error());
  const auto data = perfmodel::find_data_folder();
  if (!data) return tl::unexpected(data.error());
  auto device = open_device(arguments.backend, arguments.device);
  if (!device) return fail(ErrorCode::kImpossible, device.error().message);
  const perfmodel::Gpu gpu = gpu_of((*device)->info(), *data / "gpus").gpu;
  const Limits limits = limits_for(static_cast<double>((*device)->info().free_bytes));

  std::vector<std::string> words = arguments.app.remaining();
  words.insert(words.begin(), "kernels_bench bench");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) return fail(ErrorCode::kFormat, fmt::format("unknown argument: {}", argv[1]));
  for (const Family* family : *families) {
    for (const Case& point : sweep(*family, arguments.points, arguments.seed, limits)) {
      std::string name = fmt::format("{}/{}", family->name, name_of(point));
      std::ranges::replace(name, ' ', '/');
      benchmark::RegisterBenchmark(
          name.c_str(),
          [&device, &gpu, point](benchmark::State& state) { measure(state, **device, gpu, point); })
          ->UseManualTime()
          ->Iterations(kIterations)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (ran == 0) return fail(ErrorCode::kImpossible, "no benchmark has such a name");
  return {};
}

}  // namespace

Command bench_command(CommandParser parent) {
  const CommandParser app = parent.add_subcommand(
      "bench",
      "The first points of each sweep as Google Benchmarks: takes --benchmark_filter and its like");
  auto arguments = std::make_shared<Arguments>();
  arguments->app = app;
  app.allow_extras();
  app.add_option("--families", arguments->families, "Families by name (see --list)").delimiter(',');
  app.add_option("--points", arguments->points, "Points of each family (default 20)")
      .check(whole_number(1));
  app.add_option("--backend", arguments->backend, "auto, cuda, hip, or analytic")
      .check(one_of({"auto", "cuda", "hip", "analytic"}));
  app.add_option("--device", arguments->device, "Number of the GPU").check(whole_number(0));
  app.add_option("--seed", arguments->seed, "Of the sweeps").check(whole_number(0));
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace kernels_bench
