#include "fuzz.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

namespace perfmodel::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLine = 8192;

// The links in the build folder, /input0.csv and so on, lead to these descriptors of whoever
// follows them: names with an extension, without a file per process.
constexpr int kDescriptor = PERFMODEL_FUZZ_DESCRIPTOR;
constexpr int kFiles = 3;

int memory_file(int number) {
  PERFMODEL_CHECK(number >= 0 && number < kFiles);
  static std::array<bool, kFiles> is_open = {};
  if (!is_open[static_cast<std::size_t>(number)]) {
    const int made = memfd_create("input", MFD_CLOEXEC);
    PERFMODEL_CHECK(made >= 0 && dup2(made, kDescriptor + number) == kDescriptor + number);
    close(made);
    is_open[static_cast<std::size_t>(number)] = true;
  }
  return kDescriptor + number;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

}  // namespace

bool too_deep(std::string_view text) {
  constexpr int kDeepest = 200;
  int depth = 0, deepest = 0;
  for (char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest > kDeepest;
}

void check_line(std::string_view line) {
  PERFMODEL_CHECK(line.size() <= kLongestLine);
  PERFMODEL_CHECK(std::ranges::none_of(line, is_control));
}

void check_error(const Error& error) {
  PERFMODEL_CHECK(!error.message.empty());
  PERFMODEL_CHECK(error.line >= 0 && error.column >= 0);
  check_line(to_string(error));
}

void check_lines(std::span<const std::string> lines) {
  for (const std::string& line : lines) check_line(line);
}

const fs::path& file_with(std::string_view text, std::string_view extension, int number) {
  const int descriptor = memory_file(number);
  PERFMODEL_CHECK(ftruncate(descriptor, 0) == 0);
  PERFMODEL_CHECK(pwrite(descriptor, text.data(), text.size(), 0) ==
                  static_cast<ssize_t>(text.size()));
  static std::set<fs::path> names;
  return *names.insert(PERFMODEL_FUZZ_INPUT + std::to_string(number) + std::string(extension))
              .first;
}

WrittenText::WrittenText() {
  constexpr int kCapacity = 1 << 20;
  PERFMODEL_CHECK(pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0);
  PERFMODEL_CHECK(fcntl(ends_[1], F_SETPIPE_SZ, kCapacity) >= kCapacity);
}

WrittenText::~WrittenText() {
  close(ends_[0]);
  close(ends_[1]);
}

fs::path WrittenText::file() const { return "/proc/self/fd/" + std::to_string(ends_[1]); }

std::string WrittenText::text() {
  std::string text;
  char piece[65536];
  for (ssize_t count = 0; (count = read(ends_[0], piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(count));
  }
  return text;
}

fs::path small_data_folder() { return PERFMODEL_FUZZ_DATA; }

fs::path data_folder() { return fs::path(PERFMODEL_SOURCE_DIR) / "data"; }

}  // namespace perfmodel::fuzz
