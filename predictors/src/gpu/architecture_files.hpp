#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "perfmodel/predictors/detail/architecture.hpp"

namespace perfmodel {

/// The folder `architectures` next to a folder of GPU files.
std::filesystem::path architectures_beside(const std::filesystem::path& gpu_folder);

/// Folder of a GPU file's architecture: next to the file's folder if that is called `gpus`, as in a
/// data folder; else `otherwise`, if given.
std::filesystem::path architectures_for(const std::filesystem::path& gpu_file,
                                        const std::filesystem::path& otherwise);

/// A folder of architecture files. Reads each file once, when first asked for: many GPUs share one.
class ArchitectureFiles {
 public:
  explicit ArchitectureFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Whether there is a file of that name.
  bool has(std::string_view name) const;
  /// A hint about an unknown name: the nearest known ones, or that there are none.
  std::string nearest(std::string_view name) const;
  /// Path of the file of that name, existing or not.
  std::filesystem::path file_of(std::string_view name) const;

  Result<Architecture> read(const std::string& name);

  /// A file by itself, in which figures of others are still missing. Read once: most architectures
  /// take figures of several others.
  struct Parsed;
  Result<std::shared_ptr<const Parsed>> parsed(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  std::map<std::string, Architecture, std::less<>> read_;
  mutable std::map<std::string, std::shared_ptr<const Parsed>, std::less<>> parsed_;
};

}  // namespace perfmodel
