#include "read_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "arguments.hpp"
#include "base/plain_text.hpp"
#include "base/progress_bar.hpp"
#include "builders/named_models.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

// Bytes of all files; 0 if one has no size, as a pipe.
std::uint64_t bytes_of(const std::vector<std::string>& files) {
  std::uint64_t sum = 0;
  for (const std::string& file : files) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(file, none);
    if (none) return 0;
    sum += bytes;
  }
  return sum;
}

// One bar for all files.
class ReadingBar {
 public:
  explicit ReadingBar(const std::vector<std::string>& files)
      : bar_(files.size() == 1 ? plain_text(file_name(files.front()))
                               : fmt::format("{} files", files.size()),
             bytes_of(files), ProgressBar::Unit::kBytes),
        done_(files.size()) {}

  ReadManyOptions options(const ReadOptions& reading) {
    return {.reading = reading,
            .progress = [this](std::size_t file, std::uint64_t done, std::uint64_t) {
              sum_ += done - done_[file];
              done_[file] = done;
              bar_.update(sum_);
            }};
  }

 private:
  ProgressBar bar_;
  std::vector<std::uint64_t> done_;
  std::uint64_t sum_ = 0;
};

template <class Content>
Result<Content> only(Result<std::vector<Content>> contents) {
  if (!contents) return Unexpected{std::move(contents.error())};
  return std::move(contents->front());
}

template <class Contents>
Contents anonymized(Contents contents, Anonymizer* anonymizer) {
  if (anonymizer == nullptr || !contents) return contents;
  for (auto& content : *contents) anonymize(content, *anonymizer);
  return contents;
}

/// A missing file may be meant as the name of a model.
Error or_model(Error error) {
  std::error_code ignored;
  const std::filesystem::path& file = error.file;
  if (error.code != ErrorCode::kIo || file.has_parent_path() || file.has_extension() ||
      std::filesystem::exists(file, ignored)) {
    return error;
  }
  error.message =
      "expected a readable file or a model that `build` or `layout` knows, found none; " +
      models_like(file.string());
  return error;
}

/// Graphs of models that words name in the place of files; nothing if all are files.
std::optional<Result<std::vector<ExecutionGraph>>> graphs_of_models(
    const std::vector<std::string>& words) {
  std::vector<ExecutionGraph> graphs;
  std::string file;
  for (const std::string& word : words) {
    auto graph = graph_of_model(word);
    if (!graph && file.empty()) file = word;
    if (!graph) continue;
    if (!*graph) return Unexpected{graph->error()};
    graphs.push_back(std::move(**graph));
  }
  if (file.empty()) return graphs;
  if (graphs.empty()) return std::nullopt;
  return Unexpected{or_model({.code = ErrorCode::kIo,
                              .message = "expected models alone or files alone, found both",
                              .file = file})};
}

Result<std::vector<RecordedProgram>> programs_of(std::vector<Trace> traces) {
  std::vector<RecordedProgram> programs;
  for (Trace& trace : traces) {
    PERFMODEL_TRY(made, program_of_trace(std::move(trace)));
    programs.push_back(std::move(*made));
  }
  return programs;
}

/// A model has a graph and no trace.
Error no_trace_of_model(Error error) {
  if (error.code == ErrorCode::kIo && graph_of_model(error.file.string())) {
    error.message =
        "expected a recorded trace, found the name of a model, which `predict`, `whatif`, `memory` "
        "and `analyze` take";
  }
  return error;
}

}  // namespace

Result<std::vector<Trace>> read_trace_files(const std::vector<std::string>& files,
                                            const ReadOptions& reading, Anonymizer* anonymizer) {
  auto traces = anonymized(read_traces(files, ReadingBar(files).options(reading)), anonymizer);
  if (!traces) return Unexpected{no_trace_of_model(std::move(traces.error()))};
  for (const Trace& trace : *traces) note_recording(file_name(trace.source), trace.recording);
  return traces;
}

Result<Trace> read_trace_file(const std::string& file, const ReadOptions& reading,
                              Anonymizer* anonymizer) {
  return only(read_trace_files({file}, reading, anonymizer));
}

Result<std::vector<RecordedProgram>> read_programs(const std::vector<std::string>& files,
                                                   const ReadOptions& reading,
                                                   Anonymizer* anonymizer) {
  std::vector<RecordedProgram> programs;
  if (auto built = graphs_of_models(files)) {
    if (!*built) return Unexpected{built->error()};
    for (ExecutionGraph& graph : **built) programs.push_back({std::move(graph), nullptr});
    return programs;
  }
  if (!reading.salvage && std::ranges::all_of(files, begins_like_trace)) {
    if (auto traces = read_trace_files(files, reading, anonymizer)) {
      return programs_of(std::move(*traces));
    }
  }
  auto graphs =
      anonymized(read_execution_graphs(files, ReadingBar(files).options(reading)), anonymizer);
  if (graphs) {
    for (ExecutionGraph& graph : *graphs) programs.push_back({std::move(graph), nullptr});
    return programs;
  }
  if (!is_trace_in_place_of_graph(graphs.error())) return Unexpected{or_model(graphs.error())};
  // Ranks of one job are files of one kind.
  PERFMODEL_TRY(traces, read_trace_files(files, reading, anonymizer));
  return programs_of(std::move(*traces));
}

Result<std::vector<ExecutionGraph>> read_graph_files(const std::vector<std::string>& files,
                                                     const ReadOptions& reading) {
  if (auto built = graphs_of_models(files)) return std::move(*built);
  auto graphs = read_execution_graphs(files, ReadingBar(files).options(reading));
  if (!graphs) return Unexpected{or_model(graphs.error())};
  return graphs;
}

Result<ExecutionGraph> read_graph_file(const std::string& file, const ReadOptions& reading) {
  return only(read_graph_files({file}, reading));
}

}  // namespace perfmodel::cli
