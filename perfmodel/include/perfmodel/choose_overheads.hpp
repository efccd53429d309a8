#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An overhead table and what the user should know about the choice.
struct ChosenOverheads {
  std::string file;  ///< its name, no folders
  std::shared_ptr<const OverheadTable> table;
  std::string warning = {};  ///< empty: the reference host, or taken on this GPU
};

/// Words that `OverheadTables::choose` takes in place of a file.
inline constexpr std::string_view kReferenceHost = "reference", kMeasuredHost = "measured";

/// The overhead tables that predictions take; reads each file once.
class OverheadTables {
 public:
  /// Those of `data`/overheads.
  explicit OverheadTables(const std::filesystem::path& data) : folder_(data / "overheads") {}

  /// `which`: "reference" or empty, the table of several programs brought to one host, the same for
  /// every GPU, so that GPUs and not hosts are compared; "measured", the table that was recorded
  /// beside this GPU; anything else is a file. Errors: a file that cannot be read; no recorded
  /// table of this GPU (with those that there are).
  Result<ChosenOverheads> choose(const std::string& which, const Gpu& gpu);

 private:
  Result<ChosenOverheads> read(const std::filesystem::path& file);
  Result<ChosenOverheads> measured(const Gpu& gpu);

  std::filesystem::path folder_;
  std::map<std::filesystem::path, std::shared_ptr<const OverheadTable>> read_;
};

}  // namespace perfmodel
