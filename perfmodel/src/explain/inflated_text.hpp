#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "base/byte_source.hpp"

namespace perfmodel {

/// The whole text of a file, which may be gzip. Errors as of ByteSource; more than `most_bytes`.
inline Result<std::string> inflated_text(const std::filesystem::path& file,
                                         std::size_t most_bytes) {
  PERFMODEL_TRY(source, ByteSource::open(file, {}));
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    PERFMODEL_TRY(read, source->read(text.data() + before, kPiece));
    text.resize(before + *read);
    if (*read == 0) return text;
    if (text.size() > most_bytes) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected at most {} bytes of text, found more", most_bytes), file);
    }
  }
}

}  // namespace perfmodel
