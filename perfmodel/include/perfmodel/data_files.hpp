#pragma once

#include <filesystem>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// The folder with `gpus/`, `overheads/` and the other data files.
///
/// The environment variable PERFMODEL_DATA if it is set (then nothing else is tried); else, where
/// this is part of a shared library, `share/perfmodel/data` of its prefix; else, seen from the
/// folder of the running program, `../../../data` (a build tree inside the sources) or
/// `../share/perfmodel/data` (installed); else the sources that the library was built from.
Result<std::filesystem::path> find_data_folder();

}  // namespace perfmodel
