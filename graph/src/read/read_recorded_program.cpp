#include <fmt/format.h>

#include <utility>

#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {

bool is_trace_in_place_of_graph(const Error& error) {
  return error.message.ends_with("found a timed (Kineto) trace") && error.file != "-";
}

Result<RecordedProgram> program_of_trace(Trace trace) {
  auto made = graph_from_trace(trace);
  if (!made) return Unexpected{made.error()};
  return RecordedProgram{std::move(made->graph), std::make_shared<const Trace>(std::move(trace))};
}

Result<RecordedProgram> read_recorded_program(const std::filesystem::path& file,
                                              const ReadOptions& options) {
  auto graph = read_execution_graph(file, options);
  if (graph) return RecordedProgram{std::move(*graph), nullptr};
  if (!is_trace_in_place_of_graph(graph.error())) return Unexpected{std::move(graph.error())};
  auto trace = read_trace(file, options);
  if (!trace) return Unexpected{std::move(trace.error())};
  return program_of_trace(std::move(*trace));
}

Result<void> check_tensors_known(const ExecutionGraph& graph, std::string_view purpose) {
  if (!is_from_trace(graph)) return {};
  return fail(ErrorCode::kImpossible,
              fmt::format("expected an execution graph for {}, found a trace, which does "
                          "not record which tensors are the same",
                          purpose),
              graph.source);
}

}  // namespace perfmodel
