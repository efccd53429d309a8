#include "torchrec_plan_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "files/json_position.hpp"
#include "placed_shards.hpp"
#include "refuse_table.hpp"
#include "table_names.hpp"

namespace perfmodel::sharding {
namespace {

constexpr const char* kDefaultModule = "embedding_bag_collection";

bool cuts_rows(ShardingType type) {
  return type == ShardingType::kRowWise || type == ShardingType::kTableRowWise ||
         type == ShardingType::kGrid;
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ----------------------------------------------------------------------------------------- write

// Settings for which TorchRec's plans have no place.
std::string own_settings(const TableSettings& settings) {
  std::vector<std::string> members;
  if (settings.deduplicated) {
    members.push_back(fmt::format("\"deduplicate\": {}", *settings.deduplicated));
  }
  if (settings.wire_bytes) {
    members.push_back(fmt::format("\"wire_bytes\": {}", *settings.wire_bytes));
  }
  if (settings.hot_rows) members.push_back(fmt::format("\"hot_rows\": {}", *settings.hot_rows));
  if (members.empty()) return "";
  return fmt::format(",\n        \"perfmodel\": {{{}}}", fmt::join(members, ", "));
}

Result<std::string> table_text(const ShardedTable& table, const TablePlacement& placement,
                               std::int64_t world, std::int64_t local_world) {
  if (is_row_split(placement.type)) {
    return refuse_table(table, "a type of TorchRec's", to_string(placement.type));
  }
  if (placement.kernel == ComputeKernel::kHashed) {
    return refuse_table(table, "a kernel of TorchRec's", "hashed");
  }
  PERFMODEL_TRY(shards, placed_shards(table, placement, world, local_world));
  std::vector<std::int64_t> ranks;
  for (const PlacedShard& shard : *shards) ranks.push_back(shard.rank);
  std::string text = fmt::format(
      "{{\n        \"sharding_type\": \"{}\",\n        \"compute_kernel\": \"{}\",\n"
      "        \"ranks\": [{}],\n        \"shards\": ",
      to_string(placement.type), to_string(placement.kernel), fmt::join(ranks, ", "));
  std::string end = "\n      }";
  if (placement.kernel == ComputeKernel::kFusedUvmCaching) {
    end = fmt::format(
        ",\n        \"cache_params\": {{\"load_factor\": {}, \"prefetch_pipeline\": "
        "{}}}\n      }}",
        placement.settings.cache_share.value_or(table.cache.load_factor), table.cache.prefetches);
  }
  end = own_settings(placement.settings) + end;
  if (placement.type == ShardingType::kDataParallel) return text + "null" + end;
  for (std::size_t i = 0; i < shards->size(); ++i) {
    const auto& [rank, offset, size] = (*shards)[i];
    text += fmt::format(
        "{}\n          {{\"shard_offsets\": [{}, {}], \"shard_sizes\": [{}, {}], "
        "\"placement\": \"rank:{}/cuda:{}\"}}",
        i == 0 ? "[" : ",", offset.rows, offset.columns, size.rows, size.columns, rank,
        rank % local_world);
  }
  return text + "\n        ]" + end;
}

Result<void> check_names(std::span<const ShardedTable> tables) {
  std::set<std::string_view> names;
  for (const ShardedTable& table : tables) {
    if (!names.insert(table.name).second) {
      return decline(
          fmt::format("expected tables of different names, found \"{}\" twice", table.name));
    }
  }
  return {};
}

// ------------------------------------------------------------------------------------------ read

struct Place {
  std::int64_t rank = 0, device = 0;
};

/// "rank:9/cuda:1".
std::optional<Place> parse_place(std::string_view text) {
  constexpr std::string_view kRank = "rank:", kDevice = "/cuda:";
  Place place;
  const auto take = [&text](std::string_view prefix, std::int64_t& number) {
    if (!text.starts_with(prefix)) return false;
    const char* end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data() + prefix.size(), end, number);
    if (problem != std::errc() || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return true;
  };
  if (!take(kRank, place.rank) || !take(kDevice, place.device) || !text.empty()) {
    return std::nullopt;
  }
  return place;
}

struct Shard {
  ShardSize offset, size;
  Place place;
};

class TorchrecPlanReader {
 public:
  explicit TorchrecPlanReader(std::optional<Error>& error) : error_(error) {}

  NamedPlan read(const Json& document) {
    ObjectReader root(document, "", error_);
    const Json* modules = root.object("plan");
    root.finish();
    if (!modules || error_) return {};
    for (const auto& [module, tables] : modules->items()) {
      const std::string pointer = root.pointer("plan") + "/" + json_token(module);
      if (!tables.is_object()) root.fail_at(pointer, "an object", perfmodel::found(tables));
      if (error_) return {};
      for (const auto& [name, table] : tables.items()) {
        read_table(module, name, table, pointer + "/" + json_token(name));
        if (error_) return {};
      }
    }
    if (plan_.tables.empty()) root.fail_at("/plan", "at least one table", "none");
    find_local_world(root);
    return std::move(plan_);
  }

 private:
  void read_table(const std::string& module, const std::string& name, const Json& json,
                  const std::string& pointer) {
    ObjectReader reader(json, pointer, error_);
    NamedPlan::Table table;
    table.name = name;
    table.module = module;
    TablePlacement& placement = table.placement;
    const auto type = read_name(reader, "sharding_type", "a sharding type", sharding_type,
                                names_of<ShardingType>());
    const auto kernel = read_name(reader, "compute_kernel", "a compute kernel", compute_kernel,
                                  names_of<ComputeKernel>());
    if (type && is_row_split(*type)) reader.reject("sharding_type", "a type of TorchRec's");
    if (kernel == ComputeKernel::kHashed) reader.reject("compute_kernel", "a kernel of TorchRec's");
    if (kernel) placement.kernel = *kernel;
    placement.ranks = reader.whole_numbers("ranks", 0);
    if (placement.ranks.empty()) reader.reject("ranks", "at least one rank");
    if (reader.has("cache_params")) {
      if (const Json* cache = reader.object("cache_params", true)) read_cache(*cache, placement);
    }
    read_part(reader, "perfmodel", error_,
              [&](ObjectReader& own) { read_settings(own, placement.settings); });
    const bool has_shards = reader.has("shards");
    const Json* list = has_shards ? reader.array("shards", true) : nullptr;
    reader.finish();
    if (!names_.insert(name).second) {
      reader.fail_at(pointer, "each table in one module", "it in another one too");
    }
    if (error_) return;
    placement.type = *type;
    if (placement.type == ShardingType::kDataParallel) {
      if (list) reader.reject("shards", "null, as each rank has the whole table");
    } else if (!list) {
      reader.fail_at(has_shards ? reader.pointer("shards") : pointer, "a list of shards", "none");
    } else {
      read_shards(reader, *list, table);
    }
    note_world(reader, placement);
    if (!error_) plan_.tables.push_back(std::move(table));
  }

  // Reads the share of rows of TorchRec's CacheParams; the study has the rest.
  static void read_cache(const Json& json, TablePlacement& placement) {
    const auto share = json.find("load_factor");
    if (placement.kernel != ComputeKernel::kFusedUvmCaching || share == json.end() ||
        !share->is_number()) {
      return;
    }
    const double value = share->get<double>();
    if (value > 0 && value <= 1) placement.settings.cache_share = value;
  }

  static void read_settings(ObjectReader& reader, TableSettings& settings) {
    if (reader.has("deduplicate")) settings.deduplicated = reader.boolean("deduplicate");
    if (reader.has("wire_bytes")) {
      settings.wire_bytes = static_cast<int>(reader.whole_number("wire_bytes", 1));
      if (*settings.wire_bytes > 8) reader.reject("wire_bytes", "1 to 8 bytes per element");
    }
    if (reader.has("hot_rows")) settings.hot_rows = reader.whole_number("hot_rows", 0);
  }

  void read_shards(ObjectReader& reader, const Json& list, NamedPlan::Table& table) {
    const std::vector<std::int64_t>& ranks = table.placement.ranks;
    if (list.size() != ranks.size()) {
      reader.fail_at(reader.pointer("shards"), fmt::format("a shard per rank, {}", ranks.size()),
                     fmt::format("{}", list.size()));
    }
    std::vector<Shard> shards;
    for (std::size_t i = 0; i < list.size() && !error_; ++i) {
      shards.push_back(read_shard(list[i], fmt::format("{}/{}", reader.pointer("shards"), i)));
      if (!error_ && shards[i].place.rank != ranks[i]) {
        reader.fail_at(fmt::format("{}/{}/placement", reader.pointer("shards"), i),
                       fmt::format("rank {}, as in ranks", ranks[i]),
                       perfmodel::found(list[i]["placement"]));
      }
      places_.insert({shards.back().place.rank, shards.back().place.device});
    }
    if (!error_) check_shards(reader, shards, table);
  }

  Shard read_shard(const Json& json, const std::string& pointer) {
    ObjectReader reader(json, pointer, error_);
    Shard shard;
    shard.offset = read_pair(reader, "shard_offsets");
    shard.size = read_pair(reader, "shard_sizes");
    const std::string text = reader.string("placement");
    const auto place = parse_place(text);
    if (!place) reader.reject("placement", "\"rank:R/cuda:r\"");
    reader.finish();
    shard.place = place.value_or(Place{});
    return shard;
  }

  static ShardSize read_pair(ObjectReader& reader, const char* key) {
    const auto numbers = reader.whole_numbers(key, 0);
    if (numbers.size() != 2) {
      reader.reject(key, "rows and columns");
      return {};
    }
    return {numbers[0], numbers[1]};
  }

  /// Are these the shards of a table whose end is the last one's end?
  void check_shards(ObjectReader& reader, const std::vector<Shard>& shards,
                    NamedPlan::Table& table) {
    ShardedTable whole{.name = table.name, .rows = 0, .dim = 0};
    std::int64_t blocks = 0;  // number of row blocks
    for (const Shard& shard : shards) {
      whole.rows = std::max(whole.rows, shard.offset.rows + shard.size.rows);
      whole.dim = std::max(whole.dim, shard.offset.columns + shard.size.columns);
      blocks += shard.offset.columns == 0 ? 1 : 0;
    }
    const ShardingType type = table.placement.type;
    const std::int64_t ranks = cuts_rows(type) ? blocks : 1;
    if (cuts_columns(type)) {
      whole.least_columns = std::max<std::int64_t>(1, shards.front().size.columns);
      table.placement.least_columns = whole.least_columns;
    }
    const std::string pointer = reader.pointer("shards");
    const auto sizes = shard_sizes(whole, type, ranks, ranks);
    if (!sizes) {
      return reader.fail_at(pointer, "rows and columns of a table",
                            fmt::format("{} x {}", whole.rows, whole.dim));
    }
    if (sizes->size() != shards.size()) {
      return reader.fail_at(
          pointer,
          fmt::format("{} as TorchRec cuts {} x {} elements for {}",
                      counted(sizes->size(), "shard"), whole.rows, whole.dim, to_string(type)),
          fmt::format("{}", shards.size()));
    }
    const auto offsets = shard_offsets(*sizes, whole.rows);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      expect_pair(reader, fmt::format("{}/{}/shard_sizes", pointer, i), (*sizes)[i],
                  shards[i].size);
      expect_pair(reader, fmt::format("{}/{}/shard_offsets", pointer, i), offsets[i],
                  shards[i].offset);
    }
    table.rows = whole.rows;
    table.dim = whole.dim;
    if (type == ShardingType::kTableRowWise || type == ShardingType::kGrid) {
      note_local_world(reader, pointer, blocks);
    }
  }

  static std::string counted(std::size_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  }

  static void expect_pair(ObjectReader& reader, const std::string& pointer, ShardSize wanted,
                          ShardSize found) {
    if (found == wanted) return;
    reader.fail_at(pointer, fmt::format("[{}, {}]", wanted.rows, wanted.columns),
                   fmt::format("[{}, {}]", found.rows, found.columns));
  }

  /// Tables with a part on every rank tell how many there are.
  void note_world(ObjectReader& reader, TablePlacement& placement) {
    if (placement.type != ShardingType::kDataParallel && placement.type != ShardingType::kRowWise) {
      return;
    }
    const auto count = static_cast<std::int64_t>(placement.ranks.size());
    std::vector<std::int64_t> sorted = placement.ranks;
    std::ranges::sort(sorted);
    for (std::int64_t rank = 0; rank < count; ++rank) {
      if (sorted[rank] == rank) continue;
      return reader.reject("ranks", fmt::format("each rank from 0 to {}", count - 1));
    }
    if (plan_.world && *plan_.world != count) {
      return reader.reject("ranks", fmt::format("{} ranks, as other tables have", *plan_.world));
    }
    plan_.world = count;
    if (sorted == placement.ranks) placement.ranks.clear();
  }

  void note_local_world(ObjectReader& reader, const std::string& pointer, std::int64_t ranks) {
    if (plan_.local_world && *plan_.local_world != ranks) {
      return reader.fail_at(
          pointer, fmt::format("rows in {} blocks, as in other tables", *plan_.local_world),
          fmt::format("{}", ranks));
    }
    plan_.local_world = ranks;
  }

  bool fits_places(std::int64_t local_world) const {
    return std::ranges::all_of(
        places_, [&](const auto& place) { return place.first % local_world == place.second; });
  }

  /// Ranks of a host, of which a device is the remainder of its rank.
  void find_local_world(ObjectReader& root) {
    if (error_) return;
    std::int64_t most = plan_.world.value_or(1);
    for (const auto& [rank, device] : places_) most = std::max(most, rank + 1);
    if (plan_.world && most > *plan_.world) {
      return root.fail_at("/plan", fmt::format("ranks from 0 to {}", *plan_.world - 1),
                          fmt::format("{}", most - 1));
    }
    std::vector<std::int64_t> possible;
    for (std::int64_t ranks = 1; ranks <= most; ++ranks) {
      if (plan_.local_world && ranks != *plan_.local_world) continue;
      if (plan_.world && *plan_.world % ranks != 0) continue;
      if (fits_places(ranks)) possible.push_back(ranks);
    }
    if (possible.empty()) {
      return root.fail_at("/plan", "devices that are the ranks modulo the ranks of a host",
                          "placements that contradict each other");
    }
    // Without the number of ranks, one host may be larger than its visible part.
    const bool open = !plan_.world && possible.back() == most;
    if (possible.size() == 1 && !open) plan_.local_world = possible.front();
  }

  std::optional<Error>& error_;
  NamedPlan plan_;
  std::set<std::string> names_;
  std::set<std::pair<std::int64_t, std::int64_t>> places_;
};

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  const std::size_t shown = std::min(kShown, names.size());
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

/// Drops settings that only repeat the table's own.
void drop_own_settings(const ShardedTable& table, TablePlacement& placement) {
  if (placement.settings.cache_share == table.cache.load_factor) {
    placement.settings.cache_share.reset();
  }
}

/// The width that this table's own rule gives needs no saying.
Result<void> drop_own_width(const ShardedTable& table, TablePlacement& placement) {
  if (placement.least_columns == 0) return {};
  PERFMODEL_TRY(own, shard_sizes(table, ShardingType::kColumnWise, 1, 1));
  if (own->front().columns == placement.least_columns) placement.least_columns = 0;
  return {};
}

}  // namespace

Result<std::string> torchrec_plan_text(std::span<const ShardedTable> tables,
                                       std::span<const TablePlacement> placements,
                                       std::int64_t world, std::int64_t local_world,
                                       std::span<const std::string> modules) {
  PERFMODEL_TRY_TO(check_placements(tables, placements));
  if (modules.size() > 1 && modules.size() != tables.size()) {
    return decline(
        fmt::format("expected modules of {} tables, found {}", tables.size(), modules.size()));
  }
  PERFMODEL_TRY_TO(check_names(tables));
  std::vector<std::pair<std::string, std::string>> texts;  // module, its tables
  std::map<std::string, std::size_t> places;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::string module =
        modules.empty() ? kDefaultModule : modules[modules.size() > 1 ? t : 0];
    const auto [place, is_new] = places.try_emplace(module, texts.size());
    if (is_new) texts.emplace_back(module, "");
    PERFMODEL_TRY(text, table_text(tables[t], placements[t], world, local_world));
    texts[place->second].second +=
        fmt::format("{}\n      {}: {}", is_new ? "" : ",", json_string(tables[t].name), *text);
  }
  std::string text = "{\n  \"plan\": {";
  for (std::size_t m = 0; m < texts.size(); ++m) {
    text += fmt::format("{}\n    {}: {{{}\n    }}", m == 0 ? "" : ",", json_string(texts[m].first),
                        texts[m].second);
  }
  return text + "\n  }\n}\n";
}

Result<NamedPlan> read_torchrec_plan(const std::filesystem::path& file) {
  return read_json_file(file, "TorchRec plan",
                        [](const Json& document, std::optional<Error>& error) {
                          return TorchrecPlanReader(error).read(document);
                        });
}

Result<std::vector<TablePlacement>> match_plan(std::span<const ShardedTable> tables,
                                               const NamedPlan& plan) {
  std::map<std::string_view, const NamedPlan::Table*> by_name;
  for (const NamedPlan::Table& table : plan.tables) by_name[table.name] = &table;
  std::vector<std::string> missing, surplus;
  std::set<std::string_view> wanted;
  for (const ShardedTable& table : tables) {
    wanted.insert(table.name);
    if (!by_name.contains(table.name)) missing.push_back(table.name);
  }
  for (const NamedPlan::Table& table : plan.tables) {
    if (!wanted.contains(table.name)) surplus.push_back(table.name);
  }
  if (!missing.empty() || !surplus.empty()) {
    std::string problem;
    if (!missing.empty()) problem = "none for " + listed(missing);
    if (!surplus.empty()) {
      problem += fmt::format("{}some for {}", problem.empty() ? "" : " and ", listed(surplus));
    }
    return decline(fmt::format("expected placements of the {} tables of the study, found {}",
                               tables.size(), problem));
  }
  std::vector<TablePlacement> placements;
  for (const ShardedTable& table : tables) {
    const NamedPlan::Table& planned = *by_name[table.name];
    if (planned.rows.value_or(table.rows) != table.rows ||
        planned.dim.value_or(table.dim) != table.dim) {
      return refuse_table(table, fmt::format("a plan for {} x {} elements", table.rows, table.dim),
                          fmt::format("one for {} x {}", planned.rows.value_or(table.rows),
                                      planned.dim.value_or(table.dim)));
    }
    placements.push_back(planned.placement);
    drop_own_settings(table, placements.back());
    PERFMODEL_TRY_TO(drop_own_width(table, placements.back()));
  }
  return placements;
}

}  // namespace perfmodel::sharding
