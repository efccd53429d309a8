#pragma once

#include <optional>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The graph of a model in the place of a file: a preset of `build` ("gpt2", with the family if it
/// is needed: "dlrm:mlperf", not "mlperf"), a decoder that `layout` knows ("llama-2-7b"), or the
/// `config.json` of one. Its first warning says what was built. Nothing for other words, and for
/// files.
///
/// Errors: as the builders have them.
std::optional<Result<ExecutionGraph>> graph_of_model(const std::string& word);

}  // namespace perfmodel
