// Runs a fuzz target on the files named in a list, separated by commas, so that builds without
// libFuzzer try the inputs that once crashed too.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.hpp"

namespace {

bool run(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    std::fprintf(stderr, "cannot read %s\n", file.c_str());
    return false;
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());  // no byte behind its end
  std::printf("%s\n", file.c_str());
  std::fflush(stdout);  // the last one printed is the one that crashed
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::ifstream list(argc == 2 ? argv[1] : "");
  if (!list) {
    std::fprintf(stderr, "usage: %s LIST\n", argv[0]);
    return 2;
  }
  int count = 0;
  for (std::string file; std::getline(list, file, ','); ++count) {
    if (!run(file)) return 1;
  }
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
