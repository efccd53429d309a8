#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {

/// Reads a single JSON value strictly, with an exact place and reason for the first deviation, or
/// leniently, with a strict copy of what was meant. Runs only where the fast parser gave up.
///
/// Lenient: commas too few or too many, control characters, invalid UTF-8 and unknown escapes in
/// strings ('?' in their place), NaN and infinities ("nan", "inf", "-inf"), integers beyond 64 bits
/// (as reals). Everything else breaks the value.
struct JsonScan {
  enum class Status : std::uint8_t {
    kGood,
    kRepaired,  ///< lenient only
    kBroken,
    kOpen,  ///< correct, but the text ends before the value does
  };
  Status status = Status::kGood;
  std::size_t past = 0;          ///< the byte after the value; kGood and kRepaired
  std::size_t defect = 0;        ///< place of the first deviation
  std::string pointer, message;  ///< about the first deviation; the pointer begins below the value
  bool over_limit = false;       ///< broken by a limit
  std::string copy;              ///< lenient: the value in strict JSON, without blanks
  /// Which of the keys "id", "name", "ph", "ts" the value has, as bits 1, 2, 4, 8; 16: it has
  /// "traceEvents" or "nodes", so it is a document.
  unsigned keys = 0;

  bool complete() const { return status == Status::kGood || status == Status::kRepaired; }
};

enum class JsonManner : std::uint8_t { kStrict, kLenient };

/// Scans the value that begins at the front of `text` (blanks before it are fine). Linear in the
/// text read, without recursion.
JsonScan scan_json(std::string_view text, JsonManner manner, const ReadLimits& limits);

/// Looks ahead in broken text, each byte once: which objects end and look like elements, and which
/// never do. `scan_json` from every '{' would read the inside of what is not closed again for each.
class JsonScout {
 public:
  /// `most` bytes an object may have; `looks_like_element` judges its keys (JsonScan::keys).
  JsonScout(const ReadLimits& limits, std::size_t most, bool (*looks_like_element)(unsigned keys));
  ~JsonScout();
  JsonScout(JsonScout&&) noexcept;
  JsonScout& operator=(JsonScout&&) noexcept;

  enum class Verdict : std::uint8_t {
    kUnknown,  ///< the text so far does not decide: `scan_json` will
    kDead,     ///< broken, or not closed within the limits
    kOther,    ///< it ends, and does not look like an element
    kElement,
    kWantsText,  ///< more text than there is would tell
  };
  /// Judges the object whose '{' is the first character of `text`, at `offset` of the file. Offsets
  /// of successive calls must not fall.
  Verdict judge(std::string_view text, std::uint64_t offset);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A character for error messages: 'x', or its number where it cannot be printed.
std::string shown_character(char c);

}  // namespace perfmodel
