#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/schema.hpp"
#include "perfmodel/result.hpp"

/// Strict reading of small JSON files from `data/` and from users: every key is asked for, the
/// first oddity is the error. And the names by which such files are found.
namespace perfmodel {

using Json = nlohmann::json;

/// The value found in the file, short enough for a message, secrets masked.
std::string found(const Json& value);

/// The known name that is most like an unknown one, whatever their cases; empty where none is
/// known.
std::string nearest_of(std::string_view unknown, std::span<const std::string_view> known);

/// The same of any range of names.
template <class Names>
std::string nearest_name(std::string_view unknown, const Names& known) {
  const std::vector<std::string_view> names(std::begin(known), std::end(known));
  return nearest_of(unknown, names);
}

/// Whether a name may become part of the name of a file: lower-case letters, digits, dashes, dots
/// and underscores, no dot in front.
bool is_plain_name(std::string_view name);

/// Reads typed members of one JSON object and keeps the first error. Every member must be asked
/// for: those left over are unknown keys.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string pointer, std::optional<Error>& error);

  /// Whether a member that may be left out is there.
  bool has(const char* key);

  const std::string& pointer() const { return pointer_; }
  std::string pointer(std::string_view key) const;

  /// A value of any type; nullptr if the key is missing (an error).
  const Json* any(const char* key) { return member(key); }

  std::string string(const char* key);

  /// A name that other files may be named after.
  std::string plain_name(const char* key);

  /// A number above 0, or 0 when it is null and null is allowed here.
  double positive(const char* key, bool null_allowed = false) {
    return optional_positive(key, null_allowed).value_or(0);
  }

  std::optional<double> optional_positive(const char* key, bool null_allowed = true);

  int positive_integer(const char* key);

  /// A whole number from `least` to 2^53, or `least` after an error.
  std::int64_t whole_number(const char* key, std::int64_t least);

  /// Whole numbers of a list, each at least `least`.
  std::vector<std::int64_t> whole_numbers(const char* key, std::int64_t least);

  /// A number of at least 0, below `below`.
  double number_below(const char* key, double below, const char* wanted);

  bool boolean(const char* key);

  std::vector<std::string> strings(const char* key);

  /// nullptr where the key is missing (an error) or, if allowed, null.
  const Json* object(const char* key, bool null_allowed = false);

  /// nullptr where the key is missing (an error) or, if allowed, null.
  const Json* array(const char* key, bool null_allowed = false);

  void expect_value(const char* key, const Json& wanted);

  /// The head of a document of ours. It may list the keys that it adds to version 1.0.
  void expect_schema(const Schema& schema);

  void reject(const char* key, const std::string& wanted);

  /// An error at this object or at something in it.
  void fail_at(const std::string& pointer, const std::string& wanted, const std::string& what);

  /// Call last: any unread key is an error.
  void finish();

 private:
  void keep(const std::string& pointer, const std::string& message);
  const Json* member(const char* key);
  void expect(const std::string& key, const std::string& wanted, const Json& value);

  const Json& object_;
  std::string pointer_;
  std::optional<Error>& error_;
  std::set<std::string> known_;
};

/// Hands the document of one file to `parse(document, error)`; `what` it is, for messages: "a GPU
/// file". Nothing: all is well.
std::optional<Error> parse_document(
    const std::string& text, const std::string& what, const std::filesystem::path& file,
    const std::function<void(const Json&, std::optional<Error>&)>& parse);

/// The same, for what `parse` returns.
template <class Parse>
auto parse_json_text(const std::string& text, const std::string& what,
                     const std::filesystem::path& file, Parse parse)
    -> Result<decltype(parse(std::declval<const Json&>(), std::declval<std::optional<Error>&>()))> {
  std::optional<decltype(parse(std::declval<const Json&>(), std::declval<std::optional<Error>&>()))>
      value;
  auto keep_value = [&](const Json& document, std::optional<Error>& error) {
    value.emplace(parse(document, error));
  };
  auto problem = parse_document(text, what, file, std::ref(keep_value));
  if (problem) return Unexpected{std::move(*problem)};
  return std::move(*value);
}

/// The whole text of a file; `what` without its article: "GPU file".
Result<std::string> read_json_text(const std::filesystem::path& file, const std::string& what);

/// "a GPU file".
std::string with_article(const std::string& what);

/// `what` without its article: "GPU file".
template <class Parse>
auto read_json_file(const std::filesystem::path& file, const std::string& what, Parse parse)
    -> decltype(parse_json_text(std::string(), what, file, parse)) {
  PERFMODEL_TRY(text, read_json_text(file, what));
  return parse_json_text(*text, with_article(what), file, parse);
}

/// Entries of a folder, in no order.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder,
                                                  std::error_code& failure);

/// Every `.json` of a folder, sorted by name; `what`: "GPU files".
Result<std::vector<std::filesystem::path>> json_files(const std::filesystem::path& folder,
                                                      const std::string& what);

}  // namespace perfmodel
