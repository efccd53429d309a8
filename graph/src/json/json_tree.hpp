#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel {

/// A container is followed by its values; a member is its key and its value.
struct JsonEntry {
  simdjson::dom::element_type type;
  std::uint32_t size;  ///< bytes of a string; entries of a container, itself included
  union {
    std::int64_t integer;  ///< number; 0 or 1; values or members of a container
    double real;
    const char* text;
  };
};

/// The values of an array or the members of an object.
template <class Item>
class JsonItems {
 public:
  class Iterator {
   public:
    explicit Iterator(const JsonEntry* at) : at_(at) {}
    Item operator*() const { return Item(at_); }
    Iterator& operator++() {
      at_ = Item(at_).next();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const JsonEntry* at_;
  };
  JsonItems() = default;
  explicit JsonItems(const JsonEntry* entry) : entry_(entry) {}
  Iterator begin() const { return Iterator(entry_ ? entry_ + 1 : nullptr); }
  Iterator end() const { return Iterator(entry_ ? entry_ + entry_->size : nullptr); }
  std::size_t size() const { return entry_ ? entry_->integer : 0; }

 private:
  const JsonEntry* entry_ = nullptr;
};

/// A value of a JsonTree, with the interface of simdjson's dom::element.
class JsonValue {
 public:
  using Type = simdjson::dom::element_type;

  explicit JsonValue(const JsonEntry* entry) : entry_(entry) {}
  Type type() const { return entry_->type; }
  bool is_array() const { return type() == Type::ARRAY; }
  const JsonEntry* next() const {
    return entry_ + (is_array() || type() == Type::OBJECT ? entry_->size : 1);
  }

  simdjson::error_code get(std::string_view& out) const {
    if (type() != Type::STRING) return simdjson::INCORRECT_TYPE;
    out = {entry_->text, entry_->size};
    return simdjson::SUCCESS;
  }
  simdjson::error_code get(std::int64_t& out) const { return integer(Type::INT64, out); }
  /// Takes only numbers from 2^63 on; simdjson's takes all from 0 on.
  simdjson::error_code get(std::uint64_t& out) const { return integer(Type::UINT64, out); }
  simdjson::error_code get(bool& out) const { return integer(Type::BOOL, out); }
  simdjson::error_code get(double& out) const {
    if (type() == Type::INT64) return integer(Type::INT64, out);
    if (type() != Type::DOUBLE) {
      std::uint64_t number = 0;
      const simdjson::error_code error = get(number);
      if (!error) out = static_cast<double>(number);
      return error;
    }
    out = entry_->real;
    return simdjson::SUCCESS;
  }
  template <class Item>
  simdjson::error_code get(JsonItems<Item>& out) const {
    if (type() != Item::kContainer) return simdjson::INCORRECT_TYPE;
    out = JsonItems<Item>(entry_);
    return simdjson::SUCCESS;
  }
  static constexpr Type kContainer = Type::ARRAY;

 private:
  template <class Number>
  simdjson::error_code integer(Type wanted, Number& out) const {
    if (type() != wanted) return simdjson::INCORRECT_TYPE;
    out = static_cast<Number>(entry_->integer);
    return simdjson::SUCCESS;
  }
  const JsonEntry* entry_;
};

struct JsonMember {
  explicit JsonMember(const JsonEntry* entry) : key(entry->text, entry->size), value(entry + 1) {}
  const JsonEntry* next() const { return value.next(); }
  static constexpr JsonValue::Type kContainer = JsonValue::Type::OBJECT;

  std::string_view key;
  JsonValue value;
};

using JsonArray = JsonItems<JsonValue>;
using JsonObject = JsonItems<JsonMember>;

/// The values of a JSON array. It takes the texts that simdjson's dom takes, and refuses them with
/// its error codes, at half of the cost: simdjson finds where values begin, strings stay in the
/// text, and what is rare (escapes, fractions, long numbers) is left to simdjson.
class JsonTree {
 public:
  /// `text`: an array, with 64 readable bytes after it; it must live as long as the values.
  simdjson::error_code parse(std::string_view text);
  /// Valid after a parse() without error.
  JsonArray root() const { return JsonArray(&entries_[1]); }

 private:
  const std::uint32_t* build(const char* text, const std::uint32_t* at, const std::uint32_t* end);
  bool unescape(JsonEntry& string);
  bool set_scalar(JsonEntry& entry, const char* begin, const char* next);
  bool set_by_simdjson(JsonEntry& entry, const char* begin, const char* next);

  simdjson::dom::parser index_;  // its first stage alone
  simdjson::dom::parser rare_;
  std::vector<JsonEntry> entries_;
  std::deque<std::string> unescaped_;  // strings that are not in the text as they are
  bool text_has_escapes_ = false;
  simdjson::error_code error_ = simdjson::SUCCESS;  // met in a rare value
};

}  // namespace perfmodel
