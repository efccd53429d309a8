#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The folder with `gpus/`, `overheads/` and the other data files.
///
/// The environment variable PERFMODEL_DATA if it is set (then nothing else is tried); else
/// `share/perfmodel/data` of the prefix, or build tree, of the shared library that this is part of
/// or of the running program; else the source tree's, in a project that builds this one as a part
/// of itself.
Result<std::filesystem::path> find_data_folder();

/// The GPU that a trace names, if it is a known one: rooflines need its peaks. Errors: no data
/// folder, a GPU file that cannot be read.
Result<std::optional<Gpu>> gpu_of_trace(const std::string& name);

/// "the GPU "X" is not among the known ones (see `gpus`)", and the kind of X if its name shows it.
std::string unknown_gpu(std::string_view name);

}  // namespace perfmodel
