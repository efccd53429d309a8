#pragma once

#include <filesystem>
#include <string_view>

#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// As `find_gpu`, for names that stand in a file: a path is an unknown name. Who writes a table
/// must not choose what its reader opens.
Result<Gpu> find_known_gpu(std::string_view name, const std::filesystem::path& folder);

}  // namespace perfmodel
