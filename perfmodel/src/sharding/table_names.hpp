#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_values.hpp"
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

inline constexpr Named<TorchrecSettings::Pipeline> kPipelineNames[] = {
    {"none", TorchrecSettings::Pipeline::kNone},
    {"sparse_dist", TorchrecSettings::Pipeline::kSparseDist},
    {"prefetch", TorchrecSettings::Pipeline::kPrefetchSparseDist}};
inline constexpr Named<Launch> kLaunchNames[] = {
    {"eager", Launch::kEager}, {"graphs", Launch::kGraphs}, {"compiled", Launch::kCompiled}};

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

/// The values of a list of names, up to the first unknown one.
template <class Value, class ByName>
std::vector<Value> read_names(ObjectReader& reader, const char* key, std::string_view what,
                              ByName by_name) {
  std::vector<Value> values;
  const std::vector<std::string> names = reader.strings(key);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto value = by_name(names[i]);
    if (!value) {
      reader.fail_at(reader.pointer(key) + "/" + std::to_string(i),
                     wanted_name(what, names[i], names_of<Value>()), "\"" + names[i] + "\"");
      break;
    }
    values.push_back(*value);
  }
  return values;
}

/// Reads an object that may be left out: `read` gets its reader.
template <class Read>
void read_part(ObjectReader& reader, const char* key, std::optional<Error>& error, const Read& read,
               bool null_allowed = false) {
  const Json* json = reader.has(key) ? reader.object(key, null_allowed) : nullptr;
  if (!json) return;
  ObjectReader part(*json, reader.pointer(key), error);
  read(part);
  part.finish();
}

}  // namespace perfmodel::sharding
