#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

// The first touch of small pages took an eighth of the time of a large prediction. Pages of 2 MiB
// begin 8 MiB into the heap, which a small one does not reach.
void use_huge_pages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kHuge = 2 << 20;
  constexpr int kRoom = 64 << 20, kDefaultPad = 128 << 10;
  mallopt(M_TOP_PAD, kRoom);
  void* volatile block = std::malloc(2 * kDefaultPad);  // the heap grows for it, with that room
  mallopt(M_TOP_PAD, kDefaultPad);
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(block) / kHuge + 5) * kHuge;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  std::free(block);
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
  if (command == "predict") use_huge_pages();
  add_default_command(words);
  return cli_main(words, make_commands, suggest_preset);
}
