#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_source.hpp"
#include "json_scan.hpp"
#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/result.hpp"
#include "salvage_log.hpp"

namespace perfmodel {

/// Walks a JSON document that is one large array of elements, either bare or as one member of a
/// top-level object, without ever holding the whole text: the file (plain or gzip) is read in
/// pieces of 128 KiB, or one element, that are cut at element borders.
///
/// Protocol: `next()` until it returns kEnd. A kMember item is one small member of the top-level
/// object; a kElements item is a run of complete array elements, framed in place as a JSON array.
///
/// With ReadOptions::salvage no defect ends the walk. Where the fast way of framing elements by
/// their brackets fails, or the reader of the elements says so (`rescan_piece`), the text is
/// scanned leniently, element by element (`scan_json`): what is broken is left out up to the next
/// thing that is complete and looks like an element (a trace event has "name" and "ph" or "ts", a
/// node "id" and "name"), even within what was broken, as where two writers got in each other's
/// way. After some good elements the fast way goes on.
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

  Result<Item> next();

  /// With salvage: the elements of the piece at hand come again, one by one and repaired. False if
  /// they are already such ones; then `drop_element` is all that is left.
  bool rescan_piece();

  /// With salvage: notes that element `i` of the piece was left out by the reader.
  void drop_element(std::size_t i, std::string_view pointer_tail, std::string_view message);

  // Valid after kMember, until the next call. The text of a member longer than 1 MiB is empty.
  const std::string& member_key() const { return member_key_; }
  const std::string& member_text() const { return member_text_; }
  /// The first syntax error of the member; nothing is known of one longer than 1 MiB.
  Result<void> check_member(JsonManner manner) const;

  // Valid after kElements, until the next call.

  /// "[element,element,...]", with at least 64 readable bytes after it.
  std::string_view elements() const;
  /// The buffer itself, for repairing text in place.
  char* mutable_elements() { return buffer_.data() + piece_begin_; }
  bool repaired() const { return lenient_piece_; }  ///< strict JSON in any case
  std::size_t element_count() const { return element_starts_.size(); }
  std::size_t first_index() const { return first_index_; }  ///< index of the piece's first element
  std::string_view element_text(std::size_t i) const;       ///< i counts within the piece

  /// Bytes that were looked at for the ends of elements: linear in `bytes_read`.
  std::uint64_t bytes_scanned() const { return scanned_; }
  bool array_seen() const { return array_seen_; }
  bool bare() const { return bare_; }  ///< the document is the array
  const SalvageLog& salvage_log() const { return log_; }
  bool cut_off() const { return cut_off_; }  ///< only with `salvage`
  /// "the file breaks off in line 7, column 1 (byte 90); 5 complete events were kept".
  std::string cut_text(std::size_t kept, std::string_view elements) const;
  std::uint64_t bytes_read() const { return source_.bytes_read(); }  ///< inflated bytes so far

  /// Share of the file that was read; 0: its size is not known.
  double share_read() const { return source_.share_read(); }

  /// An error at element `i` of the current piece: "/nodes/<index><pointer_tail>: message".
  Error element_error(std::size_t i, std::string_view pointer_tail, std::string message) const;

  /// The first syntax error in the current piece, located as exactly as a strict parser says.
  Error syntax_error(std::string_view parser_message) const;

 private:
  static constexpr std::size_t kPadding = 64;  // simdjson wants 32, the bracket scanner 64
  // Salvage: an element that is still open after so much text is looked at leniently.
  static constexpr std::size_t kMostOpenBytes = std::size_t{8} << 20;
  static constexpr int kEndOfText = -1;

  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
  static std::string shown(int c);

  JsonStream(ByteSource source, const std::filesystem::path& file, std::string_view array_key,
             const ReadOptions& options);
  Error error_at(std::size_t position, std::string pointer, std::string message) const;
  Result<bool> refill();  // false: no more text
  Result<int> peek();     // next non-blank character, negative at the end of text
  Result<void> begin_document();
  Result<Item> next_member();
  Result<Item> salvage_member();
  std::string member_pointer() const;
  Error member_error(const JsonScan& scan) const;
  Result<void> expect_array(int first) const;
  Result<Item> next_elements();
  Result<Item> broken_off(std::string_view expected);
  Result<std::string> read_string();
  Result<void> read_value(std::string& text);
  Result<Item> finish();
  void restore_frame();
  Result<Item> frame_piece(std::size_t complete_end, bool closed);
  Error limit_error(std::size_t position, std::string_view expected, std::string_view limit) const;
  std::optional<Error> element_defect(std::size_t begin) const;
  Result<void> check_element(std::size_t begin, std::size_t past);

  struct Found {
    std::size_t past = 0;  // 0: not complete
    const char* too_deep = nullptr;
  };
  Found find_element_end(std::size_t begin);

  // ---- salvage: json_salvage.cpp
  struct Drop {  // a stretch of text that is being left out
    std::uint64_t offset = 0;
    std::string place;
    bool open = false;  // broken only by the end of the text
  };
  std::string place_at(std::size_t position, std::string_view message) const;
  std::uint64_t offset_of(std::size_t position) const { return consumed_offset_ + position - 1; }
  Result<Item> start_lenient(std::optional<Error> reason);
  Result<Item> next_lenient();
  Result<Item> end_lenient();
  Result<Item> take_lenient(const JsonScan& scan);
  static bool looks_like_element(unsigned keys, bool of_graph);
  Result<int> look_behind(std::size_t& distance);
  Result<bool> array_ends_here();
  static bool is_document(unsigned keys);
  void begin_drop(std::size_t position, std::string_view message, bool open);
  void end_drop();
  void note_repair(std::size_t position, std::string_view message);
  JsonScan scan_element(std::size_t most);
  JsonScout::Verdict judge_object();

  ByteSource source_;
  ReadLimits limits_;
  bool salvage_;
  std::filesystem::path file_;
  std::string array_key_;
  std::string pointer_prefix_;  // "/nodes", empty for a bare array

  /// Memory that is first touched where text comes.
  class Buffer {
   public:
    char* data() const { return text_.get(); }
    char& operator[](std::size_t i) const { return text_[i]; }
    std::size_t size() const { return size_; }
    void grow(std::size_t size) {
      auto grown = std::make_unique_for_overwrite<char[]>(size);
      std::copy_n(data(), size_, grown.get());
      text_ = std::move(grown);
      size_ = size;
    }

   private:
    std::unique_ptr<char[]> text_;
    std::size_t size_ = 0;
  };
  Buffer buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unconsumed text within buffer_
  std::uint64_t consumed_lines_ = 0;
  std::uint64_t consumed_offset_ = 0;   // bytes before buffer_
  std::uint64_t last_line_offset_ = 0;  // offset of the start of the line at buffer_'s begin

  enum class Phase { kStart, kObject, kArray, kDone } phase_ = Phase::kStart;
  bool bare_ = false, array_seen_ = false, first_member_ = true, cut_off_ = false;
  bool array_closed_ = false;

  std::string member_key_, member_text_;
  Error member_place_;
  std::size_t piece_begin_ = 0, piece_end_ = 0;  // frame positions in buffer_
  char saved_begin_ = 0, saved_end_ = 0;
  bool framed_ = false;
  std::size_t first_index_ = 0, next_index_ = 0;
  std::vector<std::size_t> element_starts_, element_ends_;
  std::uint64_t scanned_ = 0;

  SalvageLog log_;
  bool lenient_ = false, lenient_piece_ = false;
  std::string scratch_;              // the piece of a lenient element, with padding
  std::uint64_t lenient_until_ = 0;  // offset; at least to there
  std::size_t good_in_a_row_ = 0;
  bool needs_comma_ = false;  // an element is in front
  std::optional<Drop> drop_;
  std::optional<Error> first_error_;  // kept for a document without any element
  std::optional<JsonScout> scout_;
};

/// "an object", "a string", ... of a JSON text's first character, for error messages.
std::string_view json_kind(std::string_view text);

}  // namespace perfmodel
