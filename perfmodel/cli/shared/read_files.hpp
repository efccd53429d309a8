#pragma once

#include <string>
#include <vector>

#include "perfmodel/graph/graph_from_trace.hpp"
#include "read/anonymous_inputs.hpp"
#include "read/read_many.hpp"

namespace perfmodel::cli {

// Inputs of commands: files of several ranks are read side by side, and a bar on the terminal shows
// how far that is if it takes more than a second. `anonymizer`, if there is one, takes the names of
// users and hosts out of them.

Result<std::vector<Trace>> read_trace_files(const std::vector<std::string>& files,
                                            const ReadOptions& reading,
                                            Anonymizer* anonymizer = nullptr);
Result<Trace> read_trace_file(const std::string& file, const ReadOptions& reading,
                              Anonymizer* anonymizer = nullptr);

/// Execution graphs, or Kineto traces or names of models (`graph_of_model`) in their place.
Result<std::vector<RecordedProgram>> read_programs(const std::vector<std::string>& files,
                                                   const ReadOptions& reading,
                                                   Anonymizer* anonymizer = nullptr);

Result<std::vector<ExecutionGraph>> read_graph_files(const std::vector<std::string>& files,
                                                     const ReadOptions& reading);
Result<ExecutionGraph> read_graph_file(const std::string& file, const ReadOptions& reading);

}  // namespace perfmodel::cli
