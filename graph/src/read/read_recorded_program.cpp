#include <fmt/format.h>

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/byte_source.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {

bool is_trace_in_place_of_graph(const Error& error) {
  return error.message.ends_with("found a timed (Kineto) trace") && error.file != "-";
}

bool begins_like_trace(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  auto source = ByteSource::open(file, {});
  if (!source) return false;
  std::string head(std::size_t{1} << 16, '\0');
  std::size_t size = 0;
  while (size < head.size()) {
    const auto more = source->read(head.data() + size, head.size() - size);
    if (!more || *more == 0) break;
    size += *more;
  }
  const std::string_view text(head.data(), size);
  const std::size_t events = text.find("\"traceEvents\"");
  return events != text.npos && text.find("\"nodes\"") > events;
}

Result<RecordedProgram> program_of_trace(Trace trace) {
  PERFMODEL_TRY(made, graph_from_trace(trace));
  return RecordedProgram{std::move(made->graph), std::make_shared<const Trace>(std::move(trace))};
}

Result<RecordedProgram> read_recorded_program(const std::filesystem::path& file,
                                              const ReadOptions& options) {
  if (!options.salvage && begins_like_trace(file)) {
    if (auto trace = read_trace(file, options)) return program_of_trace(std::move(*trace));
  }
  auto graph = read_execution_graph(file, options);
  if (graph) return RecordedProgram{std::move(*graph), nullptr};
  if (!is_trace_in_place_of_graph(graph.error())) return Unexpected{std::move(graph.error())};
  PERFMODEL_TRY(trace, read_trace(file, options));
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
