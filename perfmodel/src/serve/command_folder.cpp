#include "command_folder.hpp"

#include <stdlib.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "base/secrets.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel::serve {

namespace fs = std::filesystem;

bool is_file_name(std::string_view name) {
  constexpr std::size_t kLongest = 200;  // a file that is being written has a longer one
  return !name.empty() && name.size() <= kLongest && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

Result<CommandFolder> CommandFolder::make() {
  std::error_code failure;
  std::string name = (fs::temp_directory_path(failure) / "perfpredict-XXXXXX").string();
  if (failure || mkdtemp(name.data()) == nullptr) {
    return fail(ErrorCode::kIo, "expected a folder for temporary files that takes one more");
  }
  return CommandFolder(name);
}

CommandFolder::CommandFolder(CommandFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

CommandFolder::~CommandFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

bool CommandFolder::has(const std::string& name) const {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path_ / name, ignored));
}

Result<void> CommandFolder::add(const std::string& name, std::string_view text) {
  if (!is_file_name(name)) {
    return decline("files: expected the name of a file, without a folder, found \"" +
                   shown_text(name, 40) + '"');
  }
  std::ofstream out(path_ / name, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) return fail(ErrorCode::kIo, "files: expected room for them on the disk, found none");
  return {};
}

Result<void> CommandFolder::add(const std::string& name, const ExecutionGraph& graph) {
  return write_execution_graph(graph, path_ / name);
}

}  // namespace perfmodel::serve
