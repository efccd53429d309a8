// The whole command, from fork to exit, in CPU time of its process.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "inputs.hpp"

extern char** environ;

namespace perfmodel::benchmarks {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Runs the program with its output thrown away: its CPU time in seconds; nothing if it failed.
std::optional<double> run(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  const bool started =
      posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  rusage usage = {};
  if (!started || wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    return std::nullopt;
  }
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void command(benchmark::State& state, const std::vector<std::string>& words) {
  for (auto _ : state) {
    const auto cpu_time = run(words);
    if (!cpu_time) {
      state.SkipWithError("the command failed");
      break;
    }
    state.SetIterationTime(*cpu_time);
  }
}

void predict_by_command(benchmark::State& state) {
  command(state, {PERFPREDICT_PROGRAM, "predict", built_graph_file("mlperf").string(), "--gpu",
                  "a100-sxm-40gb"});
}
BENCHMARK(predict_by_command)
    ->Name("command/predict_mlperf")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// A recorded DLRM, whose kernels most learned models price.
[[maybe_unused]] const bool kRecorded = [] {
  const auto graph = public_file("traces/dlrm_v100_rank0of8_et.json.gz");
  if (!graph) return false;
  benchmark::RegisterBenchmark("command/predict_recorded_dlrm",
                               [graph](benchmark::State& state) {
                                 command(state, {PERFPREDICT_PROGRAM, "predict", graph->string(),
                                                 "--gpu", "v100-sxm2-32gb"});
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  return true;
}();

void help(benchmark::State& state) { command(state, {PERFPREDICT_PROGRAM, "--help"}); }
BENCHMARK(help)->Name("command/help")->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
