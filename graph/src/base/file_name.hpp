#pragma once

#include <filesystem>
#include <string>

namespace perfmodel {

/// "a/b/graph.json" -> "graph.json": outputs name files, not the folders of one machine.
inline std::string file_name(const std::filesystem::path& path) { return path.filename().string(); }

}  // namespace perfmodel
