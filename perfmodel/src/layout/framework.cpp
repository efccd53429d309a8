#include "framework.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/each_name.hpp"
#include "base/schema.hpp"
#include "files/json_file.hpp"
#include "layout_names.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

/// The values that a number may have.
enum class FrameworkRange : std::uint8_t {
  kNumber,         ///< at least 0
  kShare,          ///< 0 to 1
  kPositiveShare,  ///< above 0, to 1: something is divided by it
  kExponent,       ///< 0 to 10: of ranks, of which there are up to a million
  kAtLeastOne,
};

struct NumberField {
  const char* key;
  double Framework::*member;
  FrameworkRange range = FrameworkRange::kNumber;
};
constexpr NumberField kNumberFields[] = {
    PERFMODEL_FIELDS(Framework, host_scale, collective_host_us, recompute_host_us,
                     microbatch_host_us, layer_factor),
    {"tensor_overlap", &Framework::tensor_overlap, FrameworkRange::kShare},
    PERFMODEL_FIELDS(Framework, hop_host_us, bucket_bytes, interference, gather_us),
    {"network_share", &Framework::network_share, FrameworkRange::kPositiveShare},
    PERFMODEL_FIELDS(Framework, rank_collective_us, node_collective_us, pipeline_collective_us),
    {"pipeline_exponent", &Framework::pipeline_exponent, FrameworkRange::kExponent},
    PERFMODEL_FIELDS(Framework, accumulation_bytes, optimizer_bytes, tensor_activation_share),
    {"reserved_share", &Framework::reserved_share, FrameworkRange::kShare},
    PERFMODEL_FIELDS(Framework, outside_bytes, fixed_bytes),
    {"low_share", &Framework::low_share, FrameworkRange::kShare},
    {"high_share", &Framework::high_share, FrameworkRange::kAtLeastOne},
};

// Files of before there were experts do not have them.
constexpr NumberField kLaterNumbers[] = {
    {"expert_factor", &Framework::expert_factor},
    {"expert_overlap", &Framework::expert_overlap, FrameworkRange::kShare},
    PERFMODEL_FIELDS(Framework, state_factor, expert_launch_us, expert_host_us,
                     host_optimizer_bytes, unit_host_us),
};

struct FlagField {
  const char* key;
  bool Framework::*member;
};
constexpr FlagField kFlags[] = {
    PERFMODEL_FIELDS(Framework, split_hops, balanced_stages, overlaps_gathers, overlap_gradients,
                     reduce_scatters),
};

constexpr FlagField kLaterFlags[] = {
    PERFMODEL_FIELDS(Framework, rows_once_per_rank, buckets_grow, fused_layers, plain_pytorch,
                     fused_pointwise),
};

constexpr double kMostNumber = 1e13;

double number_of(ObjectReader& reader, const NumberField& field) {
  const double beyond_one = std::nextafter(1.0, 2.0);
  switch (field.range) {
    case FrameworkRange::kShare:
      return reader.number_below(field.key, beyond_one, "a share from 0 to 1");
    case FrameworkRange::kPositiveShare: {
      const double share = reader.positive(field.key);
      if (share > 1) reader.reject(field.key, "a share above 0, at most 1");
      return share;
    }
    case FrameworkRange::kExponent:
      return reader.number_below(field.key, std::nextafter(10.0, 11.0), "an exponent from 0 to 10");
    case FrameworkRange::kAtLeastOne: {
      const double value = reader.number_below(field.key, kMostNumber, "a number of at least 1");
      if (value < 1) reader.reject(field.key, "a number of at least 1");
      return value;
    }
    case FrameworkRange::kNumber: break;
  }
  return reader.number_below(field.key, kMostNumber, "a number of at least 0");
}

// [[nodes, us], ...] by nodes, ascending.
std::vector<std::pair<double, double>> nodes_table(ObjectReader& reader, const char* key) {
  std::vector<std::pair<double, double>> table;
  const Json* list = reader.array(key);
  if (!list) return table;
  for (const Json& row : *list) {
    const bool pair = row.is_array() && row.size() == 2 && row[0].is_number() && row[1].is_number();
    const double nodes = pair ? row[0].get<double>() : 0, us = pair ? row[1].get<double>() : -1;
    if (nodes < 1 || us < 0 || std::max(nodes, us) > kMostNumber ||
        (!table.empty() && nodes <= table.back().first)) {
      reader.reject(key, "pairs of nodes, ascending, and microseconds");
      return {};
    }
    table.emplace_back(nodes, us);
  }
  return table;
}

// A text that may be left out.
template <class Parse, class Value>
void optional_text(ObjectReader& root, const char* key, Parse parse, Value& to) {
  if (!root.has(key)) return;
  const auto value = parse(root.string(key));
  if (value) to = *value;
  if (!value) root.reject(key, value.error().message);
}

Framework parse_framework(const Json& document, std::optional<Error>& error) {
  Framework made;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kFramework);
  made.name = root.plain_name("name");
  made.title = root.string("title");
  for (const NumberField& field : kNumberFields) {
    made.*field.member = number_of(root, field);
  }
  for (const NumberField& field : kLaterNumbers) {
    if (!root.has(field.key)) continue;
    made.*field.member = number_of(root, field);
  }
  for (const FlagField& field : kLaterFlags) {
    if (root.has(field.key)) made.*field.member = root.boolean(field.key);
  }
  for (const FlagField& field : kFlags) made.*field.member = root.boolean(field.key);
  optional_text(root, "attention", parse_layout_attention, made.attention);
  optional_text(root, "loss", parse_loss, made.loss_chunks);
  made.step_by_nodes_us = nodes_table(root, "step_by_nodes_us");
  made.hop_by_nodes_us = nodes_table(root, "hop_by_nodes_us");
  made.sources = root.strings("sources");
  root.finish();
  return made;
}

fs::path frameworks_folder(const fs::path& data) { return data / "frameworks"; }

}  // namespace

double at_nodes(const std::vector<std::pair<double, double>>& table, double nodes) {
  if (table.empty()) return 0;
  if (nodes <= table.front().first) return table.front().second;
  for (std::size_t i = 1; i < table.size(); ++i) {
    const auto& [left, below] = table[i - 1];
    const auto& [right, above] = table[i];
    if (nodes > right) continue;
    return below + (above - below) * std::log(nodes / left) / std::log(right / left);
  }
  return table.back().second;
}

Result<Framework> read_framework(const fs::path& file) {
  return read_json_file(file, "framework file", [](const Json& json, std::optional<Error>& error) {
    return parse_framework(json, error);
  });
}

Result<std::vector<std::string>> framework_names(const fs::path& data) {
  PERFMODEL_TRY(files, json_files(frameworks_folder(data), "framework files"));
  std::vector<std::string> names;
  for (const fs::path& file : *files) names.push_back(file.stem().string());
  return names;
}

Result<Framework> find_framework(std::string_view name, const fs::path& data) {
  if (name.ends_with(".json")) return read_framework(name);
  PERFMODEL_TRY(names, framework_names(data));
  for (const std::string& known : *names) {
    if (known == name) return read_framework(frameworks_folder(data) / (known + ".json"));
  }
  return fail(ErrorCode::kUnknownName, fmt::format("expected a framework ({}), found \"{}\"",
                                                   fmt::join(*names, ", "), name));
}

}  // namespace perfmodel
