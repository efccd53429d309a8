// The whole command, from fork to exit: what a user waits for.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "inputs.hpp"

extern char** environ;

namespace perfmodel::benchmarks {
namespace {

/// Runs the program with its output thrown away; true if it succeeded.
bool run(std::vector<std::string> words) {
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
  return started && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

void command(benchmark::State& state, const std::vector<std::string>& words) {
  for (auto _ : state) {
    if (!run(words)) {
      state.SkipWithError("the command failed");
      break;
    }
  }
}

void predict_built(benchmark::State& state) {
  command(state, {PERFPREDICT_PROGRAM, "predict", built_graph_file("mlperf").string(), "--gpu",
                  "a100-sxm-40gb"});
}
BENCHMARK(predict_built)
    ->Name("command/predict_mlperf")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void help(benchmark::State& state) { command(state, {PERFPREDICT_PROGRAM, "--help"}); }
BENCHMARK(help)->Name("command/help")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
