#include "fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace perfmodel::sweep {
namespace fs = std::filesystem;

void Fingerprint::mix(std::string_view bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  for (char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * kPrime;
}

void Fingerprint::add(std::string_view text) {
  mix(fmt::format("{}:", text.size()));
  mix(text);
}

Result<void> Fingerprint::add_file(const fs::path& file) {
  // No pipe: its next reader would find it empty. No device: it may never end.
  std::error_code ignored;
  std::ifstream in;
  if (fs::is_regular_file(file, ignored)) in.open(file, std::ios::binary);
  if (!in.is_open()) {
    return fail(ErrorCode::kIo, "expected a readable regular file, found none", file);
  }
  std::vector<char> buffer(std::size_t{1} << 16);
  std::uint64_t size = 0;
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
    const auto count = static_cast<std::size_t>(in.gcount());
    mix({buffer.data(), count});
    size += count;
  }
  if (in.bad()) {
    return fail(ErrorCode::kIo, "the file cannot be read", file);
  }
  mix(fmt::format(":{}", size));
  return {};
}

Result<void> Fingerprint::add_folder(const fs::path& folder) {
  std::error_code failure;
  std::vector<fs::path> files;
  if (!fs::exists(folder, failure)) return {};
  for (fs::recursive_directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->is_regular_file(failure)) files.push_back(it->path());
  }
  if (failure) {
    return fail(ErrorCode::kIo, "expected a readable folder, found " + failure.message(), folder);
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    add(file.lexically_relative(folder).generic_string());
    PERFMODEL_TRY_TO(add_file(file));
  }
  return {};
}

std::string Fingerprint::text() const { return fmt::format("{:016x}", value_); }

std::string Fingerprint::short_text() const {
  return fmt::format("{:08x}", static_cast<std::uint32_t>(value_ ^ (value_ >> 32)));
}

}  // namespace perfmodel::sweep
