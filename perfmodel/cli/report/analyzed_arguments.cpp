#include "analyzed_arguments.hpp"

#include <algorithm>
#include <utility>

#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/measured_step_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "read/check_recording.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

Result<AnalyzedInputs> read_analyzed(const AnalyzedArguments& arguments,
                                     const std::string& gpu_of_graphs) {
  PERFMODEL_TRY_TO(all_different(arguments.files));
  ReadOptions reading = arguments.reading;
  reading.python_frames = true;
  if (!reading.salvage && std::ranges::all_of(arguments.files, begins_like_trace)) {
    if (auto traces = read_trace_files(arguments.files, reading, arguments.anonymizer.get())) {
      for (const Trace& trace : *traces) PERFMODEL_TRY_TO(check_program(trace));
      return load_analyzed(arguments, std::move(*traces));
    }
  }
  PERFMODEL_TRY(programs, read_programs(arguments.files, reading, arguments.anonymizer.get()));
  AnalyzeQuestion question = arguments;
  const bool are_graphs = !programs->empty() && !programs->front().trace;
  if (question.target.gpu.empty() && are_graphs) question.target.gpu = gpu_of_graphs;
  return load_analyzed(question, std::move(*programs));
}

void add_analyzed(CommandParser app, AnalyzedArguments& arguments) {
  app.add_option("--gpu NAME", arguments.target.gpu,
                 "The GPU of a graph; of a trace another one than it was recorded on (default: "
                 "as recorded)");
  add_window(app, "--iterations", arguments.iterations,
             "Of a trace only iterations A to B - 1, counted from 0");
  app.add_option("--topology NAME", arguments.target.topology,
                 "How the GPUs are connected: a known name or a file (default: the usual node)");
  add_overheads_option(app, arguments.target.overheads, kOverheadsHelp);
  add_measured_step(app, arguments.target.measured,
                    add_scale_host(app, arguments.target.host_scale));
  add_models_option(app, arguments.target.models);
  add_reading(app, arguments.reading);
  add_anonymize(app, arguments.anonymizer);
  add_rewrite_options(app, arguments.target.rewrites, RewriteFlags::kFirst);
}

}  // namespace perfmodel::cli
