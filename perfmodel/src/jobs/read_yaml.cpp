// The only source that sees yaml-cpp. It reports by exceptions, which end here.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "job_text.hpp"

namespace perfmodel {
namespace {

// YAML 1.1 also says yes and on for true, no and off for false, and allows underscores in whole
// numbers. Quoted text is left alone.
std::string text_of(const YAML::Node& node) {
  std::string text = node.Scalar();
  constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On"};
  constexpr std::string_view kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off"};
  if (node.Tag() == "!") return text;
  if (std::ranges::find(kTrue, text) != std::end(kTrue)) return "true";
  if (std::ranges::find(kFalse, text) != std::end(kFalse)) return "false";
  const bool is_whole = text.find_first_not_of("0123456789_") == text.npos;
  if (is_whole && !text.starts_with('_')) std::erase(text, '_');
  return text;
}

class YamlReader {
 public:
  // False: more settings or deeper ones than a job has.
  bool flatten(const YAML::Node& node, const std::string& key, int depth) {
    if (depth > kDeepestJob || entries.size() >= kMostJobEntries) return false;
    std::set<std::string> names;
    if (node.IsMap()) return flatten_map(node, key, depth, names);
    JobEntry entry = {
        .key = key, .is_list = node.IsSequence(), .line = std::max(0, node.Mark().line + 1)};
    if (node.IsScalar()) entry.values = {text_of(node)};
    for (std::size_t i = 0; entry.is_list && i < node.size(); ++i) {
      if (node[i].IsScalar())
        entry.values.push_back(text_of(node[i]));
      else if (!flatten(node[i], joined_key(key, std::to_string(i)), depth + 1))
        return false;
    }
    entries.push_back(std::move(entry));
    return true;
  }

  JobEntries entries;

 private:
  // "<<: *defaults" and "<<: [*one, *other]" add settings of other maps. Settings of the map itself
  // and then of earlier maps, whose `names` are kept, hide the later ones.
  bool flatten_map(const YAML::Node& map, const std::string& key, int depth,
                   std::set<std::string>& names) {
    if (depth > kDeepestJob || (looked_at_ += 1 + map.size()) > 10 * kMostJobEntries) return false;
    std::vector<std::string> own;
    std::vector<YAML::Node> others;
    for (const auto& one : map) {
      if (!one.first.IsScalar()) return false;
      const std::string& name = one.first.Scalar();
      if (name == "<<") {
        others.push_back(one.second);
      } else if (!names.contains(name)) {
        own.push_back(name);
        if (!flatten(one.second, joined_key(key, name), depth + 1)) return false;
      }
    }
    names.insert(own.begin(), own.end());
    const auto add = [&](const YAML::Node& other) {
      return other.IsMap() && flatten_map(other, key, depth + 1, names);
    };
    return std::ranges::all_of(others, [&](const YAML::Node& other) {
      return other.IsSequence() ? std::all_of(other.begin(), other.end(), add) : add(other);
    });
  }

  std::size_t looked_at_ = 0;  // settings and maps; aliases can ask for one map very often
};

Unexpected bad_yaml(const std::string& message, const std::filesystem::path& file,
                    const YAML::Mark& mark) {
  return Unexpected{Error{.code = ErrorCode::kFormat,
                          .message = "expected YAML: " + message,
                          .file = file,
                          .line = std::max(0, mark.line + 1),
                          .column = std::max(0, mark.column + 1)}};
}

}  // namespace

Result<JobEntries> read_yaml(const std::string& text, const std::filesystem::path& file) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return bad_yaml("keys with values, found something else", file, root.Mark());
    YamlReader reader;
    if (reader.flatten(root, "", 0)) return std::move(reader.entries);
    return bad_yaml(fmt::format("at most {} levels and {} settings with plain keys, found others",
                                kDeepestJob, kMostJobEntries),
                    file, root.Mark());
  } catch (const YAML::Exception& error) {
    return bad_yaml(error.msg, file, error.mark);
  }
}

}  // namespace perfmodel
