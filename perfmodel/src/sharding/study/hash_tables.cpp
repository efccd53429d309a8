#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/decimal_number.hpp"
#include "base/split.hpp"
#include "question_changes.hpp"

namespace perfmodel::sharding {
namespace {

struct HashSpec {
  HashedArray array;
  bool by_elements = false;        ///< HashedNet: a hash for each element
  std::optional<double> ratio;     ///< elements of the tables per element of the array
  std::vector<std::string> names;  ///< tables to hash; none: all
  bool search_chooses = false;     ///< the search chooses the hashed tables
};

Unexpected unexpected_spec(std::string_view found) {
  return decline(
      fmt::format("--compress: expected robe:m=ELEMENTS or robe:ratio=FACTOR "
                  "[,Z=COLUMNS][,iterations=FACTOR][,kernel=reference|chunked][,tables=NAME+NAME|"
                  "best] (hashednet: Z=1), found {}",
                  found));
}

bool set_number(HashSpec& spec, std::string_view key, std::string_view value) {
  double number = 0;
  if (!read_decimal(value, number) || !(number > 0) || !std::isfinite(number)) return false;
  if (key == "m") {
    spec.array.elements = number;
  } else if (key == "ratio" && number >= 1) {
    spec.ratio = number;
  } else if (key == "Z" && !spec.by_elements) {
    spec.array.chunk = number;
  } else if (key == "iterations") {
    spec.array.iterations_multiplier = number;
  } else {
    return false;
  }
  return true;
}

/// False: no such key, or no value of it.
bool set_item(HashSpec& spec, std::string_view key, std::string_view value) {
  if (key == "tables" && value == "best") {
    spec.search_chooses = true;
  } else if (key == "tables") {
    for (const auto name : split(value, '+')) spec.names.emplace_back(name);
    if (value.ends_with('+')) spec.names.pop_back();
  } else if (key == "kernel") {
    spec.array.reference_kernel = value == "reference";
    return value == "reference" || value == "chunked";
  } else {
    return set_number(spec, key, value);
  }
  return true;
}

Result<HashSpec> parse_spec(std::string_view text) {
  HashSpec spec;
  spec.by_elements = text.starts_with("hashednet:");
  if (!spec.by_elements && !text.starts_with("robe:")) return unexpected_spec(text);
  if (spec.by_elements) spec.array.chunk = 1;
  std::string_view rest = text.substr(text.find(':') + 1);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equal = item.find('=');
    if (equal == std::string_view::npos ||
        !set_item(spec, item.substr(0, equal), item.substr(equal + 1))) {
      return unexpected_spec(item);
    }
  }
  return spec;
}

}  // namespace

Result<void> hash_tables(const ShardQuestion& question, LoadedStudy& loaded) {
  if (question.compress.empty()) return {};
  PERFMODEL_TRY(spec, parse_spec(question.compress));
  std::vector<ShardedTable>& tables = loaded.study.tables;
  for (const std::string& name : spec->names) {
    if (std::ranges::find(tables, name, &ShardedTable::name) == tables.end()) {
      return decline(fmt::format("--compress: expected names of tables, found {}", name));
    }
  }
  double hashed_elements = 0;
  for (ShardedTable& table : tables) {
    const auto& names = spec->names;
    if (!names.empty() && std::ranges::find(names, table.name) == names.end()) continue;
    hashed_elements += static_cast<double>(table.rows) * static_cast<double>(table.dim);
    if (spec->search_chooses) {
      std::vector<ComputeKernel>& kernels = table.rules.kernels;
      if (kernels.empty()) kernels = {ComputeKernel::kDense, ComputeKernel::kFused};
      kernels.push_back(ComputeKernel::kHashed);
      continue;
    }
    table.rules.types = {ShardingType::kDataParallel};
    table.rules.kernels = {ComputeKernel::kHashed};
  }
  HashedArray& array = spec->array;
  if (spec->ratio) array.elements = std::max(1.0, std::ceil(hashed_elements / *spec->ratio));
  if (array.elements < 1 || array.chunk < 1) return unexpected_spec(question.compress);
  loaded.study.hashed = array;
  return {};
}

}  // namespace perfmodel::sharding
