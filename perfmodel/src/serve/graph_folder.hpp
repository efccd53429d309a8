#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// Graphs in a folder, a file each, so that a server that starts again has them.
class GraphFolder {
 public:
  explicit GraphFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Writes the graph whole or not at all. Errors: the file cannot be written, a name of more than
  /// 80 bytes, a graph made of a trace (its times are not in the graph).
  Result<void> put(const std::string& name, const ExecutionGraph& graph) const;
  void remove(const std::string& name) const;
  /// Names of the graphs and their files. Error: the folder cannot be read.
  Result<std::vector<std::pair<std::string, std::filesystem::path>>> all() const;

 private:
  std::filesystem::path file_of(const std::string& name) const;
  std::filesystem::path folder_;
};

}  // namespace perfmodel::serve
