#include "analyzed_inputs.hpp"

#include <fmt/format.h>

#include <utility>

#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

// As recorded, or on another GPU.
Result<bool> choose_gpu(const AnalyzedArguments& arguments, const Trace& trace,
                        AnalyzedInputs& inputs) {
  auto known = gpu_of_trace(trace.gpu_name());
  if (!known) return Unexpected{known.error()};
  inputs.gpu = std::move(*known);
  const bool unknown = !inputs.gpu && !trace.gpu_name().empty();
  if (arguments.target.gpu.empty()) {
    if (unknown) inputs.warnings.push_back(unknown_gpu(trace.gpu_name()));
    return true;
  }
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto asked = find_gpu(arguments.target.gpu, *data / "gpus");
  if (!asked) return Unexpected{asked.error()};
  if (unknown) {
    inputs.warnings.push_back(unknown_gpu(trace.gpu_name()) +
                              ": its recorded times are judged by the peaks of " + asked->name);
  }
  const bool same = !inputs.gpu || inputs.gpu->name == asked->name;
  inputs.gpu = std::move(*asked);
  return same;
}

Error mixed_files(const std::string& file) {
  return {.code = ErrorCode::kImpossible,
          .message = "expected traces alone or graphs alone, found both",
          .file = file};
}

}  // namespace

std::string unknown_gpu(std::string_view name) {
  std::string text = fmt::format("the GPU \"{}\" is not among the known ones (see `gpus`)", name);
  if (const auto reason = why_not_a_board(name); !reason.empty()) {
    text += fmt::format(", as it is {}", reason);
  }
  return text;
}

std::vector<RankInput> AnalyzedInputs::rank_inputs() const {
  std::vector<RankInput> made;
  for (const auto& rank : ranks) {
    made.push_back({.graph = &rank->program.graph,
                    .table = rank->target.overheads,
                    .options = rank->target.options});
  }
  return made;
}

std::string AnalyzedInputs::gpu_title() const {
  if (gpu) return gpu->title + " (" + gpu->name + ")";
  return traces.empty() ? "" : traces.front().gpu_name();
}

Result<AnalyzedInputs> load_analyzed(const AnalyzedArguments& arguments) {
  if (auto once = all_different(arguments.files); !once) return Unexpected{once.error()};
  ReadOptions reading = arguments.reading;
  reading.python_frames = true;
  auto programs = read_programs(arguments.files, reading, arguments.anonymizer.get());
  if (!programs) return Unexpected{programs.error()};
  AnalyzedInputs inputs;
  for (std::size_t i = 0; i < programs->size(); ++i) {
    const bool is_trace = (*programs)[i].trace != nullptr;
    if (is_trace != ((*programs)[0].trace != nullptr)) {
      return Unexpected{mixed_files(arguments.files[i])};
    }
  }
  if ((*programs)[0].trace) {
    const auto recorded = choose_gpu(arguments, *(*programs)[0].trace, inputs);
    if (!recorded) return Unexpected{recorded.error()};
    inputs.recorded = *recorded;
  } else if (arguments.target.gpu.empty()) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected --gpu for a graph, which holds no times",
                            .file = arguments.files[0]}};
  }
  if (inputs.recorded) {
    for (RecordedProgram& program : *programs) inputs.traces.push_back(*program.trace);
    return inputs;
  }
  if (arguments.iterations) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected a trace as recorded for --iterations, found a "
                                       "prediction, whose steps are all alike",
                            .file = arguments.files[0]}};
  }
  for (std::size_t i = 0; i < programs->size(); ++i) {
    auto rank = std::make_unique<TargetInputs>();
    rank->program = std::move((*programs)[i]);
    if (auto loaded = load_target(arguments.target, *rank); !loaded) {
      return Unexpected{loaded.error()};
    }
    if (programs->size() > 1) rank->target.options.recorded_waits = false;
    inputs.warnings.insert(inputs.warnings.end(), rank->warnings.begin(), rank->warnings.end());
    inputs.ranks.push_back(std::move(rank));
  }
  inputs.gpu = inputs.ranks[0]->target.gpu;
  return inputs;
}

void add_analyzed(CommandParser app, AnalyzedArguments& arguments) {
  app.add_option("--gpu", arguments.target.gpu,
                 "The GPU of a graph; of a trace another one than it was recorded on (default: "
                 "as recorded)")
      .type_name("NAME");
  add_window(app, "--iterations", arguments.iterations,
             "Of a trace only iterations A to B - 1, counted from 0");
  app.add_option("--topology", arguments.target.topology,
                 "How the GPUs are connected: a known name or a file (default: the usual node)")
      .type_name("NAME");
  add_overheads_option(app, arguments.target.overheads, kOverheadsHelp);
  add_measured_step(app, arguments.target.measured,
                    add_scale_host(app, arguments.target.host_scale));
  add_models_option(app, arguments.target.models);
  add_reading(app, arguments.reading);
  add_anonymize(app, arguments.anonymizer);
}

}  // namespace perfmodel::cli
