#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// Whether a file of the folder can have that name: no other folder's.
bool is_file_name(std::string_view name);

/// A folder of one command of one client, for its inputs and outputs (mode 0700, in the system's
/// folder for temporary files). All in it goes with it.
class CommandFolder {
 public:
  static Result<CommandFolder> make();
  CommandFolder(CommandFolder&& other) noexcept;
  CommandFolder& operator=(CommandFolder&&) = delete;
  ~CommandFolder();

  const std::filesystem::path& path() const { return path_; }

  // Errors: a name that is no file name, a disk that is full.
  Result<void> add(const std::string& name, std::string_view text);
  Result<void> add(const std::string& name, const ExecutionGraph& graph);
  bool has(const std::string& name) const;

 private:
  explicit CommandFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace perfmodel::serve
