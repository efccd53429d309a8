#include <malloc.h>
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

// Each variant of a question makes and frees graphs and programs of megabytes. Giving their memory
// back to the system and asking for it again took half of the time of a large what-if.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace perfmodel::cli;
  keep_freed_memory();
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::size_t place = command_place(words);
  const std::string_view command = place < words.size() ? std::string_view(words[place]) : "";
  if (command == "train" || command == "eval") run_other_program(argv);
  add_default_command(words);
  return cli_main(words, make_commands, suggest_preset);
}
