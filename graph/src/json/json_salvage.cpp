// How JsonStream goes on after broken text: element by element, leniently.

#include <fmt/format.h>

#include <cstring>

#include "json_stream.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kGoodInARow = 64;  // before the fast way is tried again

}  // namespace

bool JsonStream::rescan_piece() {
  if (lenient_piece_) return false;
  restore_frame();
  begin_ = element_starts_.front();
  next_index_ = first_index_;
  array_closed_ = false;
  lenient_ = true;
  needs_comma_ = false;
  good_in_a_row_ = 0;
  lenient_until_ = offset_of(piece_end_);
  return true;
}

std::string JsonStream::cut_text(std::size_t kept, std::string_view elements) const {
  const Error end = error_at(end_, "", "");
  return fmt::format(
      "the file breaks off in line {}, column {} (byte {}); {} complete {} were kept", end.line,
      end.column, offset_of(end_), kept, elements);
}

std::string JsonStream::place_at(std::size_t position, std::string_view message) const {
  const Error error = error_at(position, "", "");
  return fmt::format("line {}, column {} (byte {}, element {}): {}", error.line, error.column,
                     offset_of(position), next_index_, message);
}

void JsonStream::drop_element(std::size_t i, std::string_view tail, std::string_view message) {
  ++log_.dropped;
  log_.dropped_bytes += element_ends_[i] - element_starts_[i];
  if (log_.dropped_places.size() >= SalvageLog::kShown) return;
  const Error error = element_error(i, tail, "");
  log_.dropped_places.push_back(fmt::format(
      "line {}, column {} (byte {}, element {}): {}{}{}", error.line, error.column,
      offset_of(element_starts_[i]), first_index_ + i, tail, tail.empty() ? "" : ": ", message));
}

void JsonStream::begin_drop(std::size_t position, std::string_view message, bool open) {
  drop_ =
      Drop{.offset = offset_of(begin_),
           .place = log_.dropped_places.size() < SalvageLog::kShown ? place_at(position, message)
                                                                    : std::string(),
           .open = open};
}

void JsonStream::end_drop() {
  ++log_.dropped;
  log_.dropped_bytes += offset_of(begin_) - drop_->offset;
  if (!drop_->place.empty()) log_.dropped_places.push_back(std::move(drop_->place));
  drop_.reset();
  good_in_a_row_ = 0;
}

void JsonStream::note_repair(std::size_t position, std::string_view message) {
  ++log_.repaired;
  good_in_a_row_ = 0;
  if (log_.repaired_places.size() < SalvageLog::kShown) {
    log_.repaired_places.push_back(place_at(position, message));
  }
}

Result<JsonStream::Item> JsonStream::start_lenient(std::optional<Error> reason) {
  phase_ = Phase::kArray;
  array_seen_ = lenient_ = true;
  needs_comma_ = false;
  good_in_a_row_ = 0;
  lenient_until_ = 0;
  element_starts_.clear();
  element_ends_.clear();
  if (reason) {
    begin_drop(begin_, reason->message, false);
    first_error_ = std::move(reason);
  }
  return next_lenient();
}

Result<JsonStream::Item> JsonStream::next_lenient() {
  element_starts_.clear();
  element_ends_.clear();
  first_index_ = next_index_;
  for (;;) {
    PERFMODEL_TRY(c, peek());
    if (*c == kEndOfText) return end_lenient();
    if (drop_) {
      if (offset_of(begin_) - drop_->offset > limits_.element_bytes) {  // a device without end?
        return Unexpected{
            limit_error(begin_, fmt::format("an element within {} bytes", limits_.element_bytes),
                        "element-bytes")};
      }
      const auto verdict = *c == '{' ? judge_object() : JsonScout::Verdict::kOther;
      if (verdict != JsonScout::Verdict::kDead && verdict != JsonScout::Verdict::kOther) {
        const JsonScan scan = scan_element(kMostOpenBytes);
        if (scan.complete() && looks_like_element(scan.keys, array_key_ == "nodes")) {
          end_drop();
          return take_lenient(scan);
        }
      }
      const void* next = std::memchr(buffer_.data() + begin_ + 1, '{', end_ - begin_ - 1);
      begin_ =
          next ? static_cast<std::size_t>(static_cast<const char*>(next) - buffer_.data()) : end_;
      continue;
    }
    if (*c == ',') {
      if (!needs_comma_) note_repair(begin_, "expected a value, found ','");
      needs_comma_ = false;
      ++begin_;
      continue;
    }
    if (*c == ']') {
      PERFMODEL_TRY(ends, array_ends_here());
      if (*ends) {
        if (!needs_comma_ && next_index_ > 0) note_repair(begin_, "expected a value, found ']'");
        ++begin_;
        lenient_ = false;
        phase_ = bare_ ? Phase::kDone : Phase::kObject;
        return bare_ ? finish() : next();
      }
    }
    if (*c != '{') {
      begin_drop(begin_, fmt::format("expected an object, found {}", shown(*c)), false);
      continue;
    }
    if (!needs_comma_ && good_in_a_row_ >= kGoodInARow && offset_of(begin_) >= lenient_until_) {
      lenient_ = false;
      return next_elements();
    }
    // Places are shown of the first ones alone; for these a scan tells what is wrong.
    const bool told = log_.dropped_places.size() < SalvageLog::kShown;
    if (!told && judge_object() == JsonScout::Verdict::kDead) {
      begin_drop(begin_, "", false);
      ++begin_;
      continue;
    }
    const JsonScan scan = scan_element(static_cast<std::size_t>(limits_.element_bytes));
    if (scan.complete()) {
      if (needs_comma_) note_repair(begin_, "expected ',' or ']', found '{'");
      return take_lenient(scan);
    }
    begin_drop(begin_ + scan.defect, scan.message, scan.status == JsonScan::Status::kOpen);
    ++begin_;
  }
}

bool JsonStream::looks_like_element(unsigned keys, bool of_graph) {
  constexpr unsigned kId = 1, kName = 2, kPhase = 4, kStamp = 8;
  if ((keys & kName) == 0 || is_document(keys)) return false;
  return of_graph ? (keys & kId) != 0 : (keys & (kPhase | kStamp)) != 0;
}

bool JsonStream::is_document(unsigned keys) {
  constexpr unsigned kDocument = 16;
  return (keys & kDocument) != 0;
}

// Judges the '{' at hand; each byte is looked at once.
JsonScout::Verdict JsonStream::judge_object() {
  if (!scout_) {
    scout_.emplace(
        limits_, kMostOpenBytes,
        array_key_ == "nodes" ? +[](unsigned keys) { return looks_like_element(keys, true); }
                              : +[](unsigned keys) { return looks_like_element(keys, false); });
  }
  for (;;) {
    const auto verdict = scout_->judge({buffer_.data() + begin_, end_ - begin_}, offset_of(begin_));
    if (verdict != JsonScout::Verdict::kWantsText || !refill().value_or(false)) return verdict;
  }
}

// The value at hand, read on until it ends, breaks or has `most` bytes.
JsonScan JsonStream::scan_element(std::size_t most) {
  for (;;) {
    JsonScan scan =
        scan_json({buffer_.data() + begin_, end_ - begin_}, JsonManner::kLenient, limits_);
    scanned_ += scan.complete() ? scan.past : scan.defect;
    const bool open = scan.status == JsonScan::Status::kOpen;
    if (!open && !(scan.complete() && scan.past > most)) return scan;
    if (!open || end_ - begin_ > most) {
      scan.status = JsonScan::Status::kBroken;
      scan.message = fmt::format("expected its end within {} bytes, found none", most);
      scan.defect = 0;
      return scan;
    }
    if (!refill().value_or(false)) return scan;
  }
}

Result<JsonStream::Item> JsonStream::take_lenient(const JsonScan& scan) {
  if (next_index_ >= limits_.elements) {
    return Unexpected{
        limit_error(begin_, fmt::format("at most {} elements", limits_.elements), "elements")};
  }
  if (scan.status == JsonScan::Status::kRepaired) {
    note_repair(begin_ + scan.defect, scan.message);
  } else {
    ++good_in_a_row_;
  }
  scratch_ = "[";
  scratch_ += scan.copy;
  scratch_ += ']';
  scratch_.append(kPadding, ' ');
  lenient_piece_ = true;
  element_starts_.push_back(begin_);
  element_ends_.push_back(begin_ + scan.past);
  begin_ += scan.past;
  ++next_index_;
  needs_comma_ = true;
  return Item::kElements;
}

// Moves `distance` from begin_ to the next character that is no blank, and returns it.
Result<int> JsonStream::look_behind(std::size_t& distance) {
  for (;;) {
    while (begin_ + distance < end_ && is_blank(buffer_[begin_ + distance])) ++distance;
    if (begin_ + distance < end_) return static_cast<unsigned char>(buffer_[begin_ + distance]);
    PERFMODEL_TRY(more, refill());
    if (!*more) return kEndOfText;
  }
}

// Whether the text after the ']' at hand fits the end of the array, or the text ends there.
Result<bool> JsonStream::array_ends_here() {
  std::size_t distance = 1;
  PERFMODEL_TRY(c, look_behind(distance));
  if (*c == kEndOfText || bare_) return *c == kEndOfText;
  if (*c != ',') return *c == '}';
  ++distance;
  c = look_behind(distance);
  if (!c) return Unexpected{c.error()};
  return *c == '"';
}

Result<JsonStream::Item> JsonStream::end_lenient() {
  phase_ = Phase::kDone;
  // An element that only the end of the text breaks is a cut, no defect.
  if (drop_ && !drop_->open) {
    end_drop();
  } else {
    cut_off_ = true;
    drop_.reset();
  }
  if (next_index_ == 0 && first_error_) return Unexpected{*first_error_};
  return Item::kEnd;
}

}  // namespace perfmodel
