#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/build/build_commands.hpp"
#include "cli_main.hpp"
#include "commands.hpp"

namespace {

void run_other_program(char** argv) {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return;
  const std::string program = (self.parent_path() / "perfpredict-train").string();
  execv(program.c_str(), argv);  // returns only if there is none
}

}  // namespace

int main(int argc, char** argv) {
  using namespace perfmodel::cli;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::size_t place = command_place(words);
  const std::string_view command = place < words.size() ? std::string_view(words[place]) : "";
  if (command == "train" || command == "eval") run_other_program(argv);
  add_default_command(words);
  return cli_main(words, make_commands, suggest_preset);
}
