#include "graph_folder.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".graph.json";

// Names are any text, files are hexadecimal digits.
std::string digits_of(const std::string& name) {
  std::string digits;
  for (const unsigned char c : name) digits += fmt::format("{:02x}", c);
  return digits;
}

// Empty: the digits are no name.
std::string name_of(std::string_view digits) {
  std::string name;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned char c = 0;
    const char* const begin = digits.data() + i;
    if (std::from_chars(begin, begin + 2, c, 16).ptr != begin + 2) return {};
    name += static_cast<char>(c);
  }
  return digits.size() % 2 == 0 ? name : std::string();
}

}  // namespace

fs::path GraphFolder::file_of(const std::string& name) const {
  return folder_ / (digits_of(name) + std::string(kSuffix));
}

Result<void> GraphFolder::put(const std::string& name, const ExecutionGraph& graph) const {
  constexpr std::size_t kLongest = 80;
  if (name.size() > kLongest) {
    return decline(
        fmt::format("expected a name of at most {} bytes, found {}", kLongest, name.size()));
  }
  if (is_from_trace(graph)) {
    return decline("expected a graph that was no trace, found one of a trace");
  }
  return write_execution_graph(graph, file_of(name));
}

void GraphFolder::remove(const std::string& name) const {
  std::error_code ignored;
  fs::remove(file_of(name), ignored);
}

Result<std::vector<std::pair<std::string, fs::path>>> GraphFolder::all() const {
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code failure;
  for (auto at = fs::directory_iterator(folder_, failure);
       !failure && at != fs::directory_iterator(); at.increment(failure)) {
    const std::string file = at->path().filename().string();
    if (!file.ends_with(kSuffix)) continue;
    const std::string name = name_of(file.substr(0, file.size() - kSuffix.size()));
    if (!name.empty()) found.emplace_back(name, at->path());
  }
  if (failure) {
    return fail(ErrorCode::kIo, "expected a folder for graphs, found: " + failure.message(),
                folder_);
  }
  return found;
}

}  // namespace perfmodel::serve
