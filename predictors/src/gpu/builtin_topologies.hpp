#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace perfmodel {

/// Name and text of every file in `data/topologies/`, compiled in by `predictors/CMakeLists.txt`,
/// so that pricing a collective needs no data folder.
std::span<const std::pair<std::string_view, std::string_view>> builtin_topology_files();
/// Text of `data/networks.json`, compiled in likewise.
std::string_view builtin_networks_file();

}  // namespace perfmodel
