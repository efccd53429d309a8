#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An overhead table and what the user should know about the choice.
struct ChosenOverheads {
  std::string file;  ///< its name, no folders
  std::shared_ptr<const OverheadTable> table;
  std::string warning = {};  ///< empty: it was taken on this GPU
};

/// The overhead tables that predictions take where nobody says otherwise; reads each file once.
class OverheadTables {
 public:
  /// Those of `data`/overheads.
  explicit OverheadTables(const std::filesystem::path& data) : folder_(data / "overheads") {}

  /// `file`, or where that is empty the table of the GPU, else the pooled one of all machines.
  /// Errors: a file that cannot be read, neither table there.
  Result<ChosenOverheads> choose(const std::string& file, const Gpu& gpu);

 private:
  Result<ChosenOverheads> read(const std::filesystem::path& file);

  std::filesystem::path folder_;
  std::map<std::filesystem::path, std::shared_ptr<const OverheadTable>> read_;
};

}  // namespace perfmodel
