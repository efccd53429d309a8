#pragma once

#include <cstddef>
#include <cstdint>
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
    kOpen,  ///< nothing is wrong but that the text ends before the value does
  };
  Status status = Status::kGood;
  std::size_t past = 0;          ///< just behind the value; kGood and kRepaired
  std::size_t defect = 0;        ///< place of the first deviation
  std::string pointer, message;  ///< of the first deviation; the pointer begins below the value
  bool over_limit = false;       ///< broken by a limit
  std::string copy;              ///< lenient: the value in strict JSON, without blanks
  /// Which of the keys "id", "name", "ph", "ts" the value has, as bits 1, 2, 4, 8; 16: it has
  /// "traceEvents" or "nodes", so it is a document.
  unsigned keys = 0;

  bool complete() const { return status == Status::kGood || status == Status::kRepaired; }
};

enum class JsonManner : std::uint8_t { kStrict, kLenient };

/// Scans the value that begins at the front of `text` (blanks before it are fine). Linear in what
/// is read, without recursion.
JsonScan scan_json(std::string_view text, JsonManner manner, const ReadLimits& limits);

/// A character for error messages: 'x', or its number where it cannot be printed.
std::string shown_character(char c);

}  // namespace perfmodel
