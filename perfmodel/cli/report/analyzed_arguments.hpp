#pragma once

#include <memory>

#include "analyze/analyzed_inputs.hpp"
#include "base/anonymize.hpp"
#include "cli/shared/arguments.hpp"

namespace perfmodel::cli {

/// Inputs of `analyze` and `report`.
struct AnalyzedArguments : AnalyzeQuestion {
  ReadOptions reading;
  std::shared_ptr<Anonymizer> anonymizer = {};
};

/// Fails if a file is given twice, a reader fails or `load_analyzed` does. `gpu_of_graphs`: the GPU
/// of graphs if the arguments name none.
Result<AnalyzedInputs> read_analyzed(const AnalyzedArguments& arguments,
                                     const std::string& gpu_of_graphs = {});

/// Flags of both commands.
void add_analyzed(CommandParser app, AnalyzedArguments& arguments);

}  // namespace perfmodel::cli
