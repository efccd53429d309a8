#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The graph of a model in the place of a file: a preset of `build` ("gpt2", with the family if it
/// is needed: "dlrm:mlperf", not "mlperf"), a decoder that `layout` knows ("llama-2-7b"), or the
/// `config.json` of one. `batch` 0: the preset's, or 1. Its first warning says what was built.
/// Nothing for other words, and for files.
///
/// Errors: as the builders have them.
std::optional<Result<ExecutionGraph>> graph_of_model(const std::string& word,
                                                     std::int64_t batch = 0);
/// The same without a look at files.
std::optional<Result<ExecutionGraph>> graph_of_name(const std::string& word,
                                                    std::int64_t batch = 0);
/// A model by name, or the content of a file. Errors: as for `read_recorded_program`.
Result<RecordedProgram> program_of(const std::string& word);

/// Names that `graph_of_model` takes, for a word that is none of them: those like it (the same
/// letters first), else all: "like it: bert-base, bert-large".
std::string models_like(const std::string& word);

}  // namespace perfmodel
