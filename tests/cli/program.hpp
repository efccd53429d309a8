#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// Runs perfpredict in a shell, as its users do.
namespace perfmodel::test_support {

using Json = nlohmann::json;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A folder of its own for every test process.
inline const fs::path& scratch() {
  static const struct Folder {
    Folder() {
      std::string name = (fs::temp_directory_path() / "perfmodel_cli_XXXXXX").string();
      path = mkdtemp(name.data());
    }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  } folder;
  return folder.path;
}

struct Outcome {
  int status = -1;
  std::string out, err;
};

// `before` goes in front of the program, `after` behind its arguments, for the shell.
inline Outcome run(const Words& arguments, const std::string& before = "",
                   const std::string& after = "") {
  const fs::path out = scratch() / "stdout", err = scratch() / "stderr";
  std::string command = before + " '" PERFPREDICT_PROGRAM "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " >'" + out.string() + "' 2>'" + err.string() + "' " + after;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
}

inline std::string shown(const Words& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += argument + " ";
  return text;
}

}  // namespace perfmodel::test_support
