#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perfmodel {

/// What a JSON document is, by the members of its top-level object: for the error of a reader that
/// was given another one.
class JsonKind {
 public:
  void see(std::string_view key);

  /// ", found a timed (Kineto) trace", as the end of a message; empty if nothing tells.
  std::string found() const;
  /// Documents of this kind are several objects in a row, so that the first one's end is an error.
  bool is_sequence() const { return kind_ == Kind::kChakra && !whole_; }
  bool is_graph() const { return kind_ == Kind::kGraph; }
  bool is_trace() const { return kind_ == Kind::kTrace; }

 private:
  enum class Kind : std::uint8_t { kUnknown, kGraph, kTrace, kChakra, kRocprofiler, kSnapshot };
  Kind kind_ = Kind::kUnknown;
  bool whole_ = true;
};

}  // namespace perfmodel
