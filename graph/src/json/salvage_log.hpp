#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel {

/// Counts the parts that `salvage` left out of a document or changed in it, with the first few
/// places.
struct SalvageLog {
  static constexpr std::size_t kShown = 3;

  std::size_t dropped = 0, repaired = 0;  // stretches of text or elements; elements
  std::uint64_t dropped_bytes = 0;
  std::vector<std::string> dropped_places, repaired_places;  // at most kShown each
  std::string damage;                                        // why the text could not be read on

  /// The first thing that was left out, or nothing: why a file holds no elements.
  std::string first_place() const;
  /// Sentences for `warnings`; `elements` is "events" or "nodes".
  void report(std::string_view elements, std::vector<std::string>& warnings) const;
};

}  // namespace perfmodel
