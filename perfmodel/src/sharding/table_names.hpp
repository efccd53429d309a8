#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/json_file.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

/// Names in files of tables and plans.
namespace perfmodel::sharding {

/// All names of an enumeration whose `to_string` is empty after its last value.
template <class Enum>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (int i = 0; !to_string(static_cast<Enum>(i)).empty(); ++i) {
    names.push_back(to_string(static_cast<Enum>(i)));
  }
  return names;
}

template <class Value>
using NamedValue = std::pair<std::string_view, Value>;

inline constexpr NamedValue<TorchrecSettings::Pipeline> kPipelineNames[] = {
    {"none", TorchrecSettings::Pipeline::kNone},
    {"sparse_dist", TorchrecSettings::Pipeline::kSparseDist},
    {"prefetch", TorchrecSettings::Pipeline::kPrefetchSparseDist}};
inline constexpr NamedValue<Launch> kLaunchNames[] = {
    {"eager", Launch::kEager}, {"graphs", Launch::kGraphs}, {"compiled", Launch::kCompiled}};

/// None: no value has this name.
template <class Value, std::size_t kCount>
std::optional<Value> value_in(const NamedValue<Value> (&known)[kCount], std::string_view name) {
  for (const auto& [text, value] : known) {
    if (text == name) return value;
  }
  return std::nullopt;
}

/// The first name of a value that has one.
template <class Value, std::size_t kCount>
std::string_view name_in(const NamedValue<Value> (&known)[kCount], Value value) {
  for (const auto& [text, named] : known) {
    if (named == value) return text;
  }
  return {};
}

/// Bytes of an element of this type: "fp16", "float16", ...
std::optional<int> dtype_bytes(std::string_view dtype);
/// As frameworks print it: "float16" of "fp16"; empty: unknown.
std::string_view full_dtype_name(std::string_view dtype);
std::vector<std::string_view> dtype_names();

/// "a sharding type, the nearest is "table_wise"": the nearest known name to an unknown one.
template <class Names>
std::string wanted_name(std::string_view what, std::string_view unknown, const Names& known) {
  return std::string(what) + ", the nearest is \"" + nearest_name(unknown, known) + "\"";
}

/// A member that is one of some names; `by_name` returns an optional.
template <class ByName, class Names>
auto read_name(ObjectReader& reader, const char* key, std::string_view what, ByName by_name,
               const Names& known) {
  const std::string name = reader.string(key);
  auto value = by_name(name);
  if (!value) reader.reject(key, wanted_name(what, name, known));
  return value;
}

}  // namespace perfmodel::sharding
