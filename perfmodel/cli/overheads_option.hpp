#pragma once

#include <filesystem>
#include <string>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// An overhead table and what the user should know about the choice.
struct ChosenOverheads {
  std::string file;  ///< its name, no folders
  OverheadTable table;
  std::string warning = {};  ///< empty: it was taken on this GPU
};

/// `file`, or where that is empty the table of the GPU in `data`/overheads, else the pooled one.
Result<ChosenOverheads> choose_overheads(const std::string& file, const Gpu& gpu,
                                         const std::filesystem::path& data);

}  // namespace perfmodel::cli
