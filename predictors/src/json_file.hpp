#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/edit_distance.hpp"
#include "perfmodel/result.hpp"

/// Strict reading of the small JSON files in `data/`: every key is asked for, the first thing that
/// is odd is the error. And the names by which such files are found.
namespace perfmodel {

using Json = nlohmann::json;

inline std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// What stands in the file, short enough for a message.
inline std::string found(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

/// Reads typed members of one JSON object and keeps the first error. Every member must be asked
/// for: those left over are unknown keys.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string pointer, std::optional<Error>& error)
      : object_(object), pointer_(std::move(pointer)), error_(error) {
    if (!object_.is_object()) fail_at(pointer_, "an object", found(object_));
  }

  std::string string(const char* key) {
    const Json* value = member(key);
    if (value && !value->is_string()) expect(key, "a string", *value);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  }

  /// A number above 0, or 0 when it is null and null is allowed here.
  double positive(const char* key, bool null_allowed = false) {
    return optional_positive(key, null_allowed).value_or(0);
  }

  std::optional<double> optional_positive(const char* key, bool null_allowed = true) {
    const Json* value = member(key);
    if (!value || (null_allowed && value->is_null())) return std::nullopt;
    const char* what = null_allowed ? "a number above 0 or null" : "a number above 0";
    if (!value->is_number()) {
      expect(key, what, *value);
      return std::nullopt;
    }
    const double number = value->get<double>();
    if (!(number > 0) || !std::isfinite(number)) {
      expect(key, what, *value);
      return std::nullopt;
    }
    return number;
  }

  int positive_integer(const char* key) {
    const Json* value = member(key);
    if (!value) return 0;
    if (!value->is_number_integer() || value->get<std::int64_t>() <= 0 ||
        value->get<std::int64_t>() > 1'000'000'000) {
      expect(key, "an integer above 0", *value);
      return 0;
    }
    return value->get<int>();
  }

  bool boolean(const char* key) {
    const Json* value = member(key);
    if (value && !value->is_boolean()) expect(key, "true or false", *value);
    return value && value->is_boolean() && value->get<bool>();
  }

  std::vector<std::string> strings(const char* key) {
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
        fail_at(pointer_ + "/" + key + "/" + std::to_string(i), "a string", found(item));
        return result;
      }
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  /// nullptr where the key is missing (an error) or, if allowed, null.
  const Json* object(const char* key, bool null_allowed = false) {
    const Json* value = member(key);
    if (!value || (null_allowed && value->is_null())) return nullptr;
    if (!value->is_object()) {
      expect(key, null_allowed ? "an object or null" : "an object", *value);
      return nullptr;
    }
    return value;
  }

  /// nullptr where the key is missing (an error) or, if allowed, null.
  const Json* array(const char* key, bool null_allowed = false) {
    const Json* value = member(key);
    if (!value || (null_allowed && value->is_null())) return nullptr;
    if (!value->is_array()) {
      expect(key, null_allowed ? "a list or null" : "a list", *value);
      return nullptr;
    }
    return value;
  }

  void expect_value(const char* key, const Json& wanted) {
    const Json* value = member(key);
    if (value && *value != wanted) expect(key, wanted.dump(), *value);
  }

  void reject(const char* key, const std::string& wanted) {
    if (!error_) expect(key, wanted, object_[key]);
  }

  /// Call last: any key that nobody asked for is an error.
  void finish() {
    if (!object_.is_object()) return;
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) fail_at(pointer_ + "/" + key, "no such key", found(value));
    }
  }

 private:
  const Json* member(const char* key) {
    known_.insert(key);
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    if (it == object_.end()) {
      fail_at(pointer_ + "/" + key, "this key", "nothing");
      return nullptr;
    }
    return &*it;
  }

  void expect(const std::string& key, const std::string& wanted, const Json& value) {
    fail_at(pointer_ + "/" + key, wanted, found(value));
  }

  void fail_at(const std::string& pointer, const std::string& wanted, const std::string& what) {
    if (error_) return;
    error_ = Error{.code = ErrorCode::kFormat,
                   .message = "expected " + wanted + ", found " + what,
                   .json_pointer = pointer};
  }

  const Json& object_;
  std::string pointer_;
  std::optional<Error>& error_;
  std::set<std::string> known_;
};

/// One file through `parse(document, error)`; `what` it is, for messages: "a GPU file".
template <class Parse>
auto parse_json_text(const std::string& text, const std::string& what,
                     const std::filesystem::path& file, Parse parse)
    -> Result<decltype(parse(std::declval<const Json&>(), std::declval<std::optional<Error>&>()))> {
  std::optional<Error> error;
  try {
    const Json document = Json::parse(text);
    auto value = parse(document, error);
    if (!error) return value;
  } catch (const Json::parse_error& e) {
    const std::size_t end = std::min(text.size(), e.byte > 0 ? e.byte - 1 : 0);
    const auto last_break = text.substr(0, end).rfind('\n');
    error = Error{.code = ErrorCode::kSyntax,
                  .message = "expected JSON, found something else here",
                  .line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + end, '\n')),
                  .column = static_cast<int>(
                      end - (last_break == std::string::npos ? 0 : last_break + 1) + 1)};
  } catch (const std::exception& e) {
    error =
        Error{.code = ErrorCode::kFormat, .message = "expected " + what + ", found " + e.what()};
  }
  error->file = file;
  return Unexpected{std::move(*error)};
}

/// `what` without its article: "GPU file".
template <class Parse>
auto read_json_file(const std::filesystem::path& file, const std::string& what, Parse parse)
    -> decltype(parse_json_text(std::string(), what, file, parse)) {
  std::error_code ignored;
  std::ifstream stream;
  if (!std::filesystem::is_directory(file, ignored)) stream.open(file, std::ios::binary);
  if (!stream.is_open()) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a readable " + what + ", found none",
                            .file = file}};
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return parse_json_text(text, "a " + what, file, parse);
}

/// Every `.json` of a folder, sorted by name; `what`: "GPU files".
inline Result<std::vector<std::filesystem::path>> json_files(const std::filesystem::path& folder,
                                                             const std::string& what) {
  std::error_code failure;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().extension() == ".json") files.push_back(it->path());
  }
  if (failure) {
    return Unexpected{
        Error{.code = ErrorCode::kIo,
              .message = "expected a folder of " + what + ", found " + failure.message(),
              .file = folder}};
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace perfmodel
