#include "json_file.hpp"

#include <dirent.h>
#include <simdjson.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <memory>
#include <new>

#include "base/budget.hpp"
#include "base/secrets.hpp"
#include "core/edit_distance.hpp"
#include "json/file_kind.hpp"
#include "json/json_kind.hpp"
#include "json_position.hpp"
#include "lower_case.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostShown = 40;

/// Text of a value as JSON; ends soon after `kMostShown` characters, whatever its size and depth.
void append_shown(const Json& value, std::string& text) {
  const auto print = [&text](const Json& scalar) {
    text += scalar.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  if (value.is_string())
    return print(value.get_ref<const std::string&>().substr(0, 2 * kMostShown));
  if (!value.is_structured()) return print(value);
  text += value.is_object() ? '{' : '[';
  bool is_first = true;
  for (const auto& [key, item] : value.items()) {
    if (text.size() > kMostShown) return;
    if (!is_first) text += ',';
    is_first = false;
    if (value.is_object()) {
      append_shown(key, text);
      text += ':';
    }
    append_shown(item, text);
  }
  text += value.is_object() ? '}' : ']';
}

std::optional<std::int64_t> whole_number_in(const Json& value, std::int64_t least) {
  constexpr double kMost = 9007199254740992.0;  // 2^53
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();  // 4e7 is a whole number too
  if (number != std::floor(number) || std::abs(number) > kMost) return std::nullopt;
  const auto whole = static_cast<std::int64_t>(number);
  return whole >= least ? std::optional(whole) : std::nullopt;
}

std::string whole_number_wanted(std::int64_t least) {
  return "a whole number of at least " + std::to_string(least);
}

/// Notes the first key that an object holds twice; of those a parser keeps the last.
class RepeatedKey {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      if (keys_.size() <= level + 1) keys_.resize(level + 2);
      keys_[level + 1].clear();
    } else if (event == Json::parse_event_t::key && number_ == 0) {
      ++keys_seen_;
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_[level].insert(key).second) {
        number_ = keys_seen_;
        key_ = key;
      }
    }
    return true;
  }

  bool found() const { return number_ > 0; }
  const std::string& key() const { return key_; }
  std::size_t number() const { return number_; }  ///< among the keys of the document, from 1

 private:
  std::vector<std::set<std::string>> keys_;
  std::size_t keys_seen_ = 0, number_ = 0;
  std::string key_;
};

/// Makes the value that `Json::parse` would make, from a document that simdjson has read, in a
/// third of the time. False if an object holds a key twice: the slow way says which.
bool fill(const simdjson::dom::element& from, Json& to) {
  using enum simdjson::dom::element_type;
  switch (from.type()) {
    case OBJECT: {
      to = Json::object();
      auto& members = to.get_ref<Json::object_t&>();
      const simdjson::dom::object object = from.get_object().value_unsafe();
      for (const auto& [key, value] : object) {
        const std::size_t before = members.size();
        const auto member = members.try_emplace(members.end(), std::string(key));
        if (members.size() == before || !fill(value, member->second)) return false;
      }
      return true;
    }
    case ARRAY: {
      to = Json::array();
      auto& items = to.get_ref<Json::array_t&>();
      const simdjson::dom::array array = from.get_array().value_unsafe();
      for (const simdjson::dom::element item : array) {
        if (!fill(item, items.emplace_back())) return false;
      }
      return true;
    }
    case INT64: {
      const std::int64_t number = from.get_int64().value_unsafe();
      to = number < 0 ? Json(number) : Json(static_cast<std::uint64_t>(number));
      return true;
    }
    case UINT64: to = from.get_uint64().value_unsafe(); return true;
    case DOUBLE: to = from.get_double().value_unsafe(); return true;
    case STRING: to = std::string(from.get_string().value_unsafe()); return true;
    case BOOL: to = from.get_bool().value_unsafe(); return true;
    case NULL_VALUE: to = nullptr; return true;
  }
  return false;
}

/// A document that is freed without allocating: the destructor of a container in `Json` allocates,
/// and ends the program if it cannot. (Documents nested deeper than files are go that way.)
class OwnedJson {
 public:
  OwnedJson() = default;
  OwnedJson(const OwnedJson&) = delete;
  OwnedJson& operator=(const OwnedJson&) = delete;
  ~OwnedJson() { empty_out(document_, 0); }

  /// Nothing if the document has any fault: `parse` says which.
  const Json* parse_plain(const std::string& text) {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    if (parser.parse(text).get(root) == simdjson::SUCCESS && fill(root, document_)) {
      return &document_;
    }
    empty_out(document_, 0);
    return nullptr;
  }

  /// Throws what `Json::parse` throws. The values read until then are freed like a
  /// whole document, which `Json::parse` itself would not do.
  const Json& parse(const std::string& text, Json::parser_callback_t callback) {
    nlohmann::detail::json_sax_dom_callback_parser<Json> reader(document_, std::move(callback));
    Json::sax_parse(text, &reader);
    return document_;
  }

 private:
  static void empty_out(Json& value, int depth) {
    constexpr int kDeepest = 200;
    if (!value.is_structured() || depth > kDeepest) return;
    for (Json& child : value) empty_out(child, depth + 1);
    value.clear();
  }

  Json document_;
};

}  // namespace

std::string found(const Json& value) {
  std::string text;
  append_shown(value, text);
  return shown_text(text, text.size() > kMostShown ? kMostShown - 3 : kMostShown);
}

std::string nearest_of(std::string_view unknown, std::span<const std::string_view> known) {
  std::string nearest;
  std::size_t least = std::string::npos;
  for (const std::string_view name : known) {
    const std::size_t distance = edit_distance(lower_case(unknown), lower_case(name));
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

bool is_plain_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, plain);
}

ObjectReader::ObjectReader(const Json& object, std::string pointer, std::optional<Error>& error)
    : object_(object), pointer_(std::move(pointer)), error_(error) {
  if (!object_.is_object()) fail_at(pointer_, "an object", found(object_));
}

bool ObjectReader::has(const char* key) {
  known_.insert(key);
  return object_.is_object() && object_.contains(key);
}

std::string ObjectReader::pointer(std::string_view key) const {
  return pointer_ + "/" + json_token(key);
}

std::string ObjectReader::string(const char* key) {
  const Json* value = member(key);
  if (value && !value->is_string()) expect(key, "a string", *value);
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

std::string ObjectReader::plain_name(const char* key) {
  std::string name = string(key);
  if (!error_ && !is_plain_name(name)) {
    reject(key, "a name of lower-case letters, digits, dashes, dots and underscores");
  }
  return name;
}

std::optional<double> ObjectReader::optional_positive(const char* key, bool null_allowed) {
  const Json* value = member(key);
  if (!value || (null_allowed && value->is_null())) return std::nullopt;
  const char* what = null_allowed ? "a number above 0 or null" : "a number above 0";
  if (!value->is_number()) {
    expect(key, what, *value);
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!(number > 0)) {
    expect(key, what, *value);
    return std::nullopt;
  }
  if (!(number >= 1e-15 && number <= 1e15)) {  // products of several of them stay finite
    expect(key, "a number from 1e-15 to 1e15", *value);
    return std::nullopt;
  }
  return number;
}

int ObjectReader::positive_integer(const char* key) {
  const Json* value = member(key);
  if (!value) return 0;
  if (!value->is_number_integer() || value->get<std::int64_t>() <= 0 ||
      value->get<std::int64_t>() > 1'000'000'000) {
    expect(key, "an integer above 0", *value);
    return 0;
  }
  return value->get<int>();
}

std::int64_t ObjectReader::whole_number(const char* key, std::int64_t least) {
  const Json* value = member(key);
  if (!value) return least;
  const auto number = whole_number_in(*value, least);
  if (!number) expect(key, whole_number_wanted(least), *value);
  return number.value_or(least);
}

std::vector<std::int64_t> ObjectReader::whole_numbers(const char* key, std::int64_t least) {
  std::vector<std::int64_t> numbers;
  const Json* list = array(key);
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    const auto number = whole_number_in((*list)[i], least);
    if (!number) {
      fail_at(pointer(key) + "/" + std::to_string(i), whole_number_wanted(least),
              found((*list)[i]));
      return numbers;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

double ObjectReader::number_below(const char* key, double below, const char* wanted) {
  const Json* value = member(key);
  if (!value) return 0;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (!(number >= 0 && number < below)) expect(key, wanted, *value);
  return number;
}

bool ObjectReader::boolean(const char* key) {
  const Json* value = member(key);
  if (value && !value->is_boolean()) expect(key, "true or false", *value);
  return value && value->is_boolean() && value->get<bool>();
}

std::vector<std::string> ObjectReader::strings(const char* key) {
  std::vector<std::string> result;
  const Json* value = member(key);
  if (!value) return result;
  if (!value->is_array()) {
    expect(key, "a list of strings", *value);
    return result;
  }
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_string()) {
      fail_at(pointer(key) + "/" + std::to_string(i), "a string", found(item));
      return result;
    }
    result.push_back(item.get<std::string>());
  }
  return result;
}

const Json* ObjectReader::object(const char* key, bool null_allowed) {
  const Json* value = member(key);
  if (!value || (null_allowed && value->is_null())) return nullptr;
  if (!value->is_object()) {
    expect(key, null_allowed ? "an object or null" : "an object", *value);
    return nullptr;
  }
  return value;
}

const Json* ObjectReader::array(const char* key, bool null_allowed) {
  const Json* value = member(key);
  if (!value || (null_allowed && value->is_null())) return nullptr;
  if (!value->is_array()) {
    expect(key, null_allowed ? "a list or null" : "a list", *value);
    return nullptr;
  }
  return value;
}

void ObjectReader::expect_value(const char* key, const Json& wanted) {
  const Json* value = member(key);
  if (value && *value != wanted) expect(key, wanted.dump(), *value);
}

// "none; by its keys this is an answer of `predict`", or "nothing".
static std::string document_by_keys(const Json& object) {
  for (const auto& member : object.items()) {
    const auto kind = document_of_key(member.key());
    if (!kind.empty()) return "none; by its keys this is " + std::string(kind);
  }
  return "nothing";
}

void ObjectReader::expect_schema(const Schema& schema) {
  if (object_.is_object() && !object_.contains("schema")) {
    known_.insert("schema");
    fail_at(pointer("schema"), "this key with \"" + std::string(schema.name) + "\"",
            document_by_keys(object_));
  } else {
    expect_value("schema", Json(schema.name));
  }
  const std::int64_t version = whole_number("version", 0);
  if (const std::string problem = version_problem(schema, version); !problem.empty()) {
    keep(pointer("version"), problem);
  }
  if (has("minor_version")) whole_number("minor_version", 0);
}

void ObjectReader::reject(const char* key, const std::string& wanted) {
  if (!error_) expect(key, wanted, object_[key]);
}

void ObjectReader::fail_at(const std::string& pointer, const std::string& wanted,
                           const std::string& what) {
  keep(pointer, "expected " + wanted + ", found " + what);
}

void ObjectReader::finish() {
  if (!object_.is_object()) return;
  for (const auto& [key, value] : object_.items()) {
    if (known_.contains(key)) continue;
    const std::string nearest = nearest_name(key, known_);
    const bool alike = edit_distance(key, nearest) <= 1 + key.size() / 4;
    fail_at(pointer(key), "no such key" + (alike ? " (but \"" + nearest + "\")" : std::string()),
            found(value));
  }
}

void ObjectReader::keep(const std::string& pointer, const std::string& message) {
  if (error_) return;
  error_ = Error{.code = ErrorCode::kFormat, .message = message, .json_pointer = pointer};
}

const Json* ObjectReader::member(const char* key) {
  known_.insert(key);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  if (it == object_.end()) {
    fail_at(pointer(key), "this key", "nothing");
    return nullptr;
  }
  return &*it;
}

void ObjectReader::expect(const std::string& key, const std::string& wanted, const Json& value) {
  fail_at(pointer(key), wanted, found(value));
}

std::optional<Error> parse_document(
    const std::string& text, const std::string& what, const std::filesystem::path& file,
    const std::function<void(const Json&, std::optional<Error>&)>& parse) {
  std::optional<Error> error;
  try {
    RepeatedKey repeated;
    OwnedJson owned;
    const Json* plain = owned.parse_plain(text);
    const Json& document = plain ? *plain : owned.parse(text, std::ref(repeated));
    if (repeated.found()) {
      error = Error{.code = ErrorCode::kFormat,
                    .message = "expected each key once, found \"" + repeated.key() + "\" again"};
      set_position(*error, find_json_key(text, repeated.number()), text);
    } else {
      parse(document, error);
      if (!error) return std::nullopt;
      if (!error->json_pointer.empty()) {
        set_position(*error, find_json_pointer(text, error->json_pointer), text);
      }
    }
  } catch (const Json::parse_error& e) {
    const std::string kind = file_kind(text, file);
    error =
        Error{.code = ErrorCode::kSyntax,
              .message = "expected JSON, found " + (kind.empty() ? "something else here" : kind)};
    set_position(*error, std::min(text.size(), e.byte > 0 ? e.byte - 1 : 0), text);
  } catch (const std::bad_alloc&) {  // a message short enough to need no memory
    return Error{.code = ErrorCode::kOutOfMemory, .message = "out of memory"};
  } catch (const std::exception& e) {
    error =
        Error{.code = ErrorCode::kFormat, .message = "expected " + what + ", found " + e.what()};
  }
  error->file = file;
  return error;
}

Result<std::string> read_json_text(const std::filesystem::path& file, const std::string& what) {
  std::error_code ignored;
  std::ifstream stream;
  if (!std::filesystem::is_directory(file, ignored)) stream.open(file, std::ios::binary);
  if (!stream.is_open()) {
    return fail(ErrorCode::kIo, "expected a readable " + what + ", found none", file);
  }
  const std::uint64_t most = json_document_limit();
  const auto too_large = [&] {
    return fail(ErrorCode::kFormat,
                "expected " + with_article(what) + " of at most " + std::to_string(most) +
                    " bytes, found more (perfpredict --json-limit SIZE COMMAND raises it)",
                file);
  };
  // A too large file is refused unread; pipes have no size.
  const auto known_size = std::filesystem::file_size(file, ignored);
  if (!ignored && known_size > most) return too_large();
  std::string text;
  const std::size_t block = ignored || known_size == 0 ? 1 << 16 : known_size + 1;
  text.reserve(block + simdjson::SIMDJSON_PADDING);  // a parser need not copy it
  for (std::size_t size = 0; stream; size += static_cast<std::size_t>(stream.gcount())) {
    text.resize(size + block);
    stream.read(text.data() + size, static_cast<std::streamsize>(block));
    text.resize(size + static_cast<std::size_t>(stream.gcount()));
    if (text.size() > most) return too_large();
    if (!text.empty() && text.front() == '\0') break;  // no JSON, and perhaps a device without end
  }
  return text;
}

std::string with_article(const std::string& what) {
  const bool is_vowel = std::string_view("aeiou").find(what.front()) != std::string_view::npos;
  return (is_vowel ? "an " : "a ") + what;
}

// No directory_iterator: libstdc++ ends the program where one finds no memory.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder,
                                                  std::error_code& failure) {
  std::vector<std::filesystem::path> entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open) {
    failure.assign(errno, std::generic_category());
    return entries;
  }
  for (errno = 0; const dirent* entry = readdir(open.get()); errno = 0) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back(folder / name);
  }
  if (errno != 0) failure.assign(errno, std::generic_category());
  return entries;
}

Result<std::vector<std::filesystem::path>> json_files(const std::filesystem::path& folder,
                                                      const std::string& what) {
  std::error_code failure;
  std::vector<std::filesystem::path> files = folder_entries(folder, failure);
  std::erase_if(files, [](const auto& file) { return file.extension() != ".json"; });
  if (failure) {
    return fail(ErrorCode::kIo, "expected a folder of " + what + ", found " + failure.message(),
                folder);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace perfmodel
