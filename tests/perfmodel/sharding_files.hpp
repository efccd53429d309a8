#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sharding {

/// A folder for the files of one test.
class FileFolder {
 public:
  explicit FileFolder(const std::string& name) : folder_(test_support::scratch() / name) {
    std::filesystem::create_directories(folder_);
  }
  FileFolder(const FileFolder&) = delete;
  FileFolder& operator=(const FileFolder&) = delete;
  ~FileFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  std::filesystem::path written(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

  /// An error without the folder.
  std::string without_folder(const Error& error) const {
    std::string text = to_string(error);
    const std::string prefix = folder_.string() + "/";
    if (const auto at = text.find(prefix); at != std::string::npos) text.erase(at, prefix.size());
    return text;
  }

 private:
  std::filesystem::path folder_;
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace perfmodel::sharding
