#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace perfmodel {

/// Something impossible in a recording, and how the reader treated it.
struct RecordingFinding {
  std::string kind;       ///< stable name for programs: "overlap_on_stream", "stamp_far_off", ...
  std::size_t count = 0;  ///< events (or steps) that it concerns
  std::string sentence;   ///< for people, with the count
};

/// Findings of the check of a recording. Empty: nothing was odd.
struct Recording {
  std::vector<RecordingFinding> findings;

  /// Adds a finding unless `count` is 0.
  void say(std::string kind, std::size_t count, std::string sentence) {
    if (count > 0) findings.push_back({std::move(kind), count, std::move(sentence)});
  }
};

}  // namespace perfmodel
