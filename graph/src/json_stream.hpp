#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "byte_source.hpp"
#include "perfmodel/graph/read_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Walks a JSON document that is one large array of elements, either bare or as one member of a
/// top-level object, without ever holding the whole text: the file (plain or gzip) is read in
/// pieces of some megabytes that are cut at element borders.
///
/// Protocol: `next()` until it returns kEnd. A kMember item is one small member of the top-level
/// object; a kElements item is a run of complete array elements, framed in place as a JSON array.
class JsonStream {
 public:
  enum class Item { kMember, kElements, kEnd };

  /// `array_key` names the member whose elements are streamed ("traceEvents", "nodes").
  static Result<JsonStream> open(const std::filesystem::path& file, std::string_view array_key,
                                 const ReadOptions& options = {});

  /// The same of text in memory, which must outlive the stream. `name` stands for the file in
  /// errors.
  static JsonStream over(std::string_view text, const std::filesystem::path& name,
                         std::string_view array_key, const ReadOptions& options = {});

  /// With `salvage`, a document that breaks off ends after its last complete element.
  Result<Item> next();

  // Valid after kMember, until the next call. The text of a member longer than 1 MiB is empty.
  const std::string& member_key() const { return member_key_; }
  const std::string& member_text() const { return member_text_; }

  // Valid after kElements, until the next call.

  /// "[element,element,...]", with at least 64 readable bytes behind it.
  std::string_view elements() const;
  /// The buffer itself, for repairing text in place.
  char* mutable_elements() { return buffer_.data() + piece_begin_; }
  std::size_t element_count() const { return element_starts_.size(); }
  std::size_t first_index() const { return first_index_; }  ///< of the first element of the piece
  std::string_view element_text(std::size_t i) const;       ///< i counts within the piece

  bool array_seen() const { return array_seen_; }
  bool cut_off() const { return cut_off_; }                          ///< only with `salvage`
  std::uint64_t bytes_read() const { return source_.bytes_read(); }  ///< inflated bytes so far

  /// An error at element `i` of the current piece: "/nodes/<index><pointer_tail>: message".
  Error element_error(std::size_t i, std::string_view pointer_tail, std::string message) const;

  /// The first syntax error in the current piece, located as exactly as a strict parser says.
  Error syntax_error(std::string_view parser_message) const;

 private:
  JsonStream(ByteSource source, const std::filesystem::path& file, std::string_view array_key,
             const ReadOptions& options);
  Error error_at(std::size_t position, std::string pointer, std::string message) const;
  Result<bool> refill();  // false: no more text
  Result<char> peek();    // next non-blank character, '\0' at the end of text
  Result<Item> next_member();
  Result<Item> next_elements();
  Result<std::string> read_string();
  Result<void> read_value(std::string& text);
  Result<Item> finish();
  void restore_frame();

  ByteSource source_;
  bool salvage_;
  std::filesystem::path file_;
  std::string array_key_;
  std::string pointer_prefix_;  // "/nodes", empty for a bare array

  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unconsumed text within buffer_
  std::uint64_t consumed_lines_ = 0;
  std::uint64_t consumed_offset_ = 0;   // bytes before buffer_
  std::uint64_t last_line_offset_ = 0;  // offset of the start of the line at buffer_'s begin

  enum class Phase { kStart, kObject, kArray, kDone } phase_ = Phase::kStart;
  bool bare_ = false, array_seen_ = false, first_member_ = true, cut_off_ = false;
  bool array_closed_ = false;

  std::string member_key_, member_text_;
  std::size_t piece_begin_ = 0, piece_end_ = 0;  // frame positions in buffer_
  char saved_begin_ = 0, saved_end_ = 0;
  bool framed_ = false;
  std::size_t first_index_ = 0, next_index_ = 0;
  std::vector<std::size_t> element_starts_, element_ends_;
};

/// Position just past the value that starts at `begin`, or nullptr if it does not end before
/// `end`. 64 bytes behind `end` must be readable. Brackets inside strings do not count.
const char* find_container_end(const char* begin, const char* end);

/// "an object", "a string", ... of a JSON text's first character, for error messages.
std::string_view json_kind(std::string_view text);

}  // namespace perfmodel
