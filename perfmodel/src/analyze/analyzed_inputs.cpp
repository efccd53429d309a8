#include "analyze/analyzed_inputs.hpp"

#include <fmt/format.h>

#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace {

// Whether the trace is judged as recorded, not as predicted on another GPU.
Result<bool> choose_gpu(const std::string& name, const Trace& trace, AnalyzedInputs& inputs) {
  PERFMODEL_TRY(known, gpu_of_trace(trace.gpu_name()));
  inputs.gpu = std::move(*known);
  const bool unknown = !inputs.gpu && !trace.gpu_name().empty();
  if (name.empty()) {
    if (unknown) inputs.warnings.push_back(unknown_gpu(trace.gpu_name()));
    return true;
  }
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(asked, find_gpu(name, *data / "gpus"));
  if (unknown) {
    inputs.warnings.push_back(unknown_gpu(trace.gpu_name()) +
                              ": its recorded times are judged by the peaks of " + asked->name);
  }
  const bool same = !inputs.gpu || inputs.gpu->name == asked->name;
  inputs.gpu = std::move(*asked);
  return same;
}

}  // namespace

std::vector<RankInput> AnalyzedInputs::rank_inputs() const {
  std::vector<RankInput> inputs;
  for (const auto& rank : ranks) {
    inputs.push_back({.graph = &rank->program.graph,
                      .table = rank->target().overheads,
                      .options = rank->target().options});
  }
  return inputs;
}

std::string AnalyzedInputs::gpu_title() const {
  if (gpu) return gpu->title + " (" + gpu->name + ")";
  return traces.empty() ? "" : traces.front().gpu_name();
}

Result<Findings> AnalyzedInputs::find(const AnalyzeOptions& options) const {
  return recorded ? analyze(traces, known_gpu(), options) : analyze(rank_inputs(), *gpu, options);
}

Result<void> AnalyzedInputs::check_models() const {
  for (const auto& rank : ranks) PERFMODEL_TRY_TO(rank->chosen.check());
  return {};
}

namespace {

Result<AnalyzedInputs> load_predicted(const AnalyzeQuestion& question,
                                      std::vector<RecordedProgram> programs,
                                      AnalyzedInputs inputs) {
  if (question.iterations) {
    return decline(
        "expected a trace as recorded for --iterations, found a prediction, whose steps are all "
        "alike",
        question.files.front());
  }
  for (RecordedProgram& program : programs) {
    auto rank = std::make_unique<TargetInputs>();
    rank->program = std::move(program);
    PERFMODEL_TRY_TO(load_target(question.target, *rank));
    if (programs.size() > 1) rank->loaded.front().target.options.recorded_waits = false;
    inputs.warnings.insert(inputs.warnings.end(), rank->warnings.begin(), rank->warnings.end());
    inputs.ranks.push_back(std::move(rank));
  }
  inputs.gpu = inputs.ranks.front()->target().gpu;
  return inputs;
}

}  // namespace

Result<AnalyzedInputs> load_analyzed(const AnalyzeQuestion& question, std::vector<Trace> traces) {
  AnalyzedInputs inputs;
  PERFMODEL_TRY(recorded, choose_gpu(question.target.gpu, traces.front(), inputs));
  inputs.recorded = *recorded;
  if (!inputs.recorded) {
    std::vector<RecordedProgram> programs;
    for (Trace& trace : traces) {
      PERFMODEL_TRY(program, program_of_trace(std::move(trace)));
      programs.push_back(std::move(*program));
    }
    return load_predicted(question, std::move(programs), std::move(inputs));
  }
  if (!question.target.rewrites.empty()) {
    return decline(fmt::format("expected a graph, or --gpu of another GPU, for {}, found a trace "
                               "that is judged as recorded",
                               question.target.rewrites.front().name),
                   question.files.front());
  }
  inputs.traces = std::move(traces);
  return inputs;
}

Result<AnalyzedInputs> load_analyzed(const AnalyzeQuestion& question,
                                     std::vector<RecordedProgram> programs) {
  const bool are_traces = programs.front().trace != nullptr;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if ((programs[i].trace != nullptr) == are_traces) continue;
    return decline("expected traces alone or graphs alone, found both", question.files[i]);
  }
  if (are_traces) {
    std::vector<Trace> traces;
    for (const RecordedProgram& program : programs) traces.push_back(*program.trace);
    return load_analyzed(question, std::move(traces));
  }
  if (question.target.gpu.empty()) {
    return decline("expected --gpu for a graph, which holds no times", question.files.front());
  }
  return load_predicted(question, std::move(programs), {});
}

}  // namespace perfmodel
