#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// Limits of the reader. The defaults are far above any recording, so that a broken or hostile file
/// ends with an error and not with a full memory. Every such error names the limit and the way to
/// raise it.
struct ReadLimits {
  static constexpr std::size_t kMostNesting = 1000, kMostDepth = 4000;
  static constexpr std::uint64_t kMostElements = 2147483647;  // indices have 32 bits

  /// Brackets within brackets of one node or event. At most kMostNesting.
  std::size_t nesting = 128;
  std::size_t depth = 1000;  ///< nodes within nodes of a graph. At most kMostDepth.
  std::uint64_t string_bytes = std::uint64_t{64} << 20;  ///< one string
  /// One node or event, or one Chakra message. Below 4 GiB.
  std::uint64_t element_bytes = std::uint64_t{1} << 30;
  std::uint64_t elements = kMostElements;              ///< nodes or events. At most kMostElements.
  std::uint64_t kept_bytes = std::uint64_t{16} << 30;  ///< size of the result, approximately
  /// Inflated over compressed bytes; judged from 64 MiB of inflated text on. gzip reaches 1032.
  std::uint64_t inflation = 250;
};

/// Sets one limit from text such as "nesting=200", "element-bytes=2GiB" or "kept-bytes=64GiB"
/// (units KiB, MiB, GiB). Errors: an unknown name (all are listed), what is no whole number, a
/// value outside of the limit's range.
Result<void> set_limit(ReadLimits& limits, std::string_view assignment);

/// "nesting, string-bytes, ...": the names that `set_limit` knows.
std::string read_limit_names();

/// How files are read. The same for graphs, traces and Chakra traces.
struct ReadOptions {
  /// Recover every complete node or event of a broken file. Warnings count all drops and repairs
  /// and name the first places.
  bool salvage = false;
  /// The file "-" is standard input, plain or gzip. Off by default, since a name may come from
  /// whoever talks to a server over its standard input.
  bool dash_is_stdin = false;
  /// Keep a trace's calls of Python functions, too, which can be 85 % of a file.
  bool python_frames = false;
  ReadLimits limits = {};
  /// Called after each read from the file (every megabyte or less), on the reading thread, with the
  /// bytes of the file read so far (compressed ones if it is compressed) and the size of the file,
  /// 0 if it has none (a pipe).
  std::function<void(std::uint64_t bytes_read_raw, std::uint64_t raw_size_or_0)> progress = {};
};

}  // namespace perfmodel
