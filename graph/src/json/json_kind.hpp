#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel {

class JsonStream;

/// The keys of the object at the front of `text`, as far as the text goes. Keys of objects inside
/// it are left out.
std::vector<std::string_view> json_keys(std::string_view text);
/// Names the kind of JSON document, among those that this program writes or takes, that has this
/// key; empty: the key tells nothing.
std::string_view document_of_key(std::string_view key);
/// Whether an object is a segment of PyTorch's allocator.
bool is_memory_segment(const std::vector<std::string_view>& keys);

/// Guesses the kind of a JSON document by the members of its top-level object, or of the first
/// elements of a bare array. A reader that was given another kind says so in its error.
class JsonKind {
 public:
  void see(std::string_view key);
  /// Sees elements of a bare array, until one tells.
  void see_elements(const JsonStream& stream);

  /// ", found a timed (Kineto) trace", as the end of a message; empty if nothing tells.
  std::string found() const;
  /// Documents of this kind are several objects in a row, so that the first one's end is an error.
  bool is_sequence() const { return !whole_ && (kind_ == Kind::kChakra || kind_ == Kind::kNsight); }
  bool is_graph() const { return kind_ == Kind::kGraph; }
  bool is_trace() const { return kind_ == Kind::kTrace; }

 private:
  void see_element(std::string_view text);

  enum class Kind : std::uint8_t {
    kUnknown,
    kGraph,
    kTrace,
    kChakra,
    kRocprofiler,
    kSnapshot,
    kNsight,
    kSpeedscope,
    kOwn
  };
  Kind kind_ = Kind::kUnknown;
  bool whole_ = true;
  std::string_view own_;  // see `document_of_key`
  std::string elements_;  // describes the first one, if its keys fit no kind
};

}  // namespace perfmodel
