#include "study_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "study_tables.hpp"

namespace perfmodel::sharding {
namespace {

using Interaction = DensePart::Interaction;

constexpr Named<Interaction> kInteractions[] = {{"dot", Interaction::kDot},
                                                {"concat", Interaction::kConcatenation},
                                                {"average_pool", Interaction::kAveragePool},
                                                {"low_rank_cross", Interaction::kLowRankCross}};
constexpr std::string_view kGemmTypes[] = {"float32", "tf32", "float16", "bfloat16"};

template <class Value, std::size_t kCount>
std::optional<Value> choice(ObjectReader& reader, const char* key,
                            const Named<Value> (&known)[kCount]) {
  const std::string name = reader.string(key);
  if (const auto value = value_in(known, name)) return value;
  std::string wanted;
  for (const auto& [text, value] : known) {
    wanted += fmt::format("{}\"{}\"", wanted.empty() ? "one of " : ", ", text);
  }
  reader.reject(key, wanted);
  return std::nullopt;
}

void read_known_times(ObjectReader& reader, DensePart& dense) {
  constexpr double kMost = 1e12;
  constexpr const char* kWanted = "a number of at least 0";
  if (reader.has("forward_us")) {
    dense.forward_us = reader.number_below("forward_us", kMost, kWanted);
  }
  if (reader.has("backward_us")) {
    dense.backward_us = reader.number_below("backward_us", kMost, kWanted);
  }
  if (reader.has("parameter_bytes")) {
    dense.parameter_bytes = reader.whole_number("parameter_bytes", 0);
  }
}

void read_layers(ObjectReader& reader, DensePart& dense) {
  if (reader.has("bottom_mlp")) dense.bottom_mlp = reader.whole_numbers("bottom_mlp", 1);
  if (dense.bottom_mlp.size() == 1) {
    reader.reject("bottom_mlp", "the width of the dense features and those of the layers");
  }
  dense.top_mlp = reader.whole_numbers("top_mlp", 1);
  if (dense.top_mlp.empty() || dense.top_mlp.back() != 1) {
    reader.reject("top_mlp", "widths of which the last is 1");
  }
  if (reader.has("interaction")) {
    dense.interaction = choice(reader, "interaction", kInteractions).value_or(Interaction::kDot);
  }
  if (reader.has("dtype")) {
    dense.dtype = full_dtype_name(reader.string("dtype"));
    if (std::ranges::find(kGemmTypes, dense.dtype) == std::end(kGemmTypes)) {
      reader.reject("dtype", "one of \"float32\", \"tf32\", \"float16\", \"bfloat16\"");
    }
  }
  struct Size {
    const char* key;
    std::int64_t* value;
    Interaction interaction;
    std::string_view name;
  };
  for (const Size& size :
       {Size{"cross_layers", &dense.cross_layers, Interaction::kLowRankCross, "low_rank_cross"},
        Size{"cross_rank", &dense.cross_rank, Interaction::kLowRankCross, "low_rank_cross"},
        Size{"pool_stride", &dense.pool_stride, Interaction::kAveragePool, "average_pool"}}) {
    if (!reader.has(size.key)) continue;
    *size.value = reader.whole_number(size.key, 1);
    if (dense.interaction != size.interaction) {
      reader.reject(size.key, fmt::format("it beside interaction \"{}\" alone", size.name));
    }
  }
}

void read_dense(ObjectReader& reader, DensePart& dense) {
  read_known_times(reader, dense);
  if (dense.backward_us && !dense.forward_us) {
    reader.reject("backward_us", "it beside forward_us alone");
  }
  if (dense.forward_us) {
    for (const char* key : {"bottom_mlp", "top_mlp", "interaction", "cross_layers", "cross_rank",
                            "pool_stride", "dtype"}) {
      if (reader.has(key)) reader.reject(key, "layers or forward_us, not both");
    }
  } else {
    read_layers(reader, dense);
  }
}

void read_hashed(ObjectReader& reader, HashedArray& array) {
  array.elements = static_cast<double>(reader.whole_number("elements", 1));
  if (reader.has("chunk")) array.chunk = static_cast<double>(reader.whole_number("chunk", 1));
  if (reader.has("dtype")) {
    array.element_bytes =
        read_name(reader, "dtype", "an element type", dtype_bytes, dtype_names()).value_or(4);
  }
  if (reader.has("reference_kernel")) array.reference_kernel = reader.boolean("reference_kernel");
  if (reader.has("iterations_multiplier")) {
    array.iterations_multiplier = reader.positive("iterations_multiplier");
  }
}

// Keys are the planner's own names, in its units: bytes and bytes per millisecond.
void read_torchrec(ObjectReader& reader, TorchrecTopology& topology) {
  for (const auto& [key, bytes] :
       {std::pair{"hbm_cap", &topology.hbm_cap}, {"ddr_cap", &topology.ddr_cap}}) {
    if (reader.has(key)) *bytes = reader.whole_number(key, 1);
  }
  for (const auto& [key, number] :
       {std::pair{"hbm_mem_bw", &topology.hbm_bandwidth},
        {"ddr_mem_bw", &topology.ddr_bandwidth},
        {"hbm_to_ddr_mem_bw", &topology.host_link_bandwidth},
        {"intra_host_bw", &topology.intra_host_bandwidth},
        {"inter_host_bw", &topology.inter_host_bandwidth},
        {"bwd_compute_multiplier", &topology.backward_compute_multiplier},
        {"weighted_feature_bwd_compute_multiplier", &topology.weighted_backward_multiplier}}) {
    if (reader.has(key)) *number = reader.positive(key);
  }
}

void read_machine(ObjectReader& root, ShardingStudy& study) {
  for (const auto& [key, text] :
       {std::pair{"name", &study.name}, {"gpu", &study.gpu}, {"topology", &study.topology}}) {
    if (!root.has(key)) continue;
    *text = root.string(key);
    if (text->empty()) root.reject(key, "a name");
  }
  for (const auto& [key, number] : {std::pair{"world", &study.world},
                                    {"local_world", &study.local_world},
                                    {"batch_per_rank", &study.batch_per_rank}}) {
    if (root.has(key)) *number = root.whole_number(key, 1);
  }
  if (study.world && study.local_world && *study.world % *study.local_world != 0) {
    root.reject("local_world", fmt::format("a divisor of world, {}", *study.world));
  }
  if (root.has("launch")) study.launch = choice(root, "launch", kLaunchNames);
  if (root.has("network")) {
    auto network = ExchangeSoftware::parse(root.string("network"));
    if (network) {
      study.network = std::move(*network);
    } else {
      root.reject("network", network.error().message.substr(std::string("expected ").size()));
    }
  }
  if (root.has("pipeline")) study.pipeline = choice(root, "pipeline", kPipelineNames);
  if (root.has("free_share")) {
    study.free_share = root.number_below("free_share", 1, "a share of at least 0, below 1");
  }
}

/// Ranks that tables must keep off, against the job's.
void check_forbidden_ranks(const ShardingStudy& study, const std::vector<std::string>& pointers,
                           std::optional<Error>& error) {
  for (std::size_t t = 0; t < study.tables.size() && study.world && !error; ++t) {
    for (std::int64_t rank : study.tables[t].rules.forbidden_ranks) {
      if (rank < *study.world) continue;
      error = Error{
          .code = ErrorCode::kFormat,
          .message = fmt::format("expected ranks from 0 to {}, found {}", *study.world - 1, rank),
          .json_pointer = pointers[t]};
      return;
    }
  }
}

ShardingStudy parse_study(const Json& document, std::optional<Error>& error) {
  ShardingStudy study;
  ObjectReader root(document, "", error);
  if (root.has("schema") || root.has("version")) root.expect_schema(schemas::kShardingStudy);
  read_machine(root, study);
  const auto part = [&](const char* key, const auto& read) { read_part(root, key, error, read); };
  part("dense", [&](ObjectReader& json) { read_dense(json, study.dense.emplace()); });
  part("torchrec", [&](ObjectReader& json) { read_torchrec(json, study.torchrec.emplace()); });
  part("hashed", [&](ObjectReader& json) { read_hashed(json, study.hashed.emplace()); });
  TableDefaults defaults;
  part("defaults", [&](ObjectReader& json) { defaults = read_defaults(json, error); });
  const Json* list = root.array("tables");
  root.finish();
  if (list && list->empty()) root.reject("tables", "at least one table");
  TableList tables;
  std::vector<std::string> pointers;
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    const std::string pointer = fmt::format("/tables/{}", i);
    parse_table((*list)[i], pointer, defaults, tables, error);
    pointers.resize(tables.tables().size(), pointer);
  }
  study.tables = tables.take();
  check_forbidden_ranks(study, pointers, error);
  return study;
}

}  // namespace

Result<ShardingStudy> read_sharding_study(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (name.ends_with(".json")) return read_json_file(file, "sharding study", parse_study);
  if (name.ends_with(".csv") || name.ends_with(".csv.gz")) {
    return read_table_csv(file);
  }
  return fail(ErrorCode::kFormat,
              fmt::format("expected a name that ends in .json or .csv, found \"{}\"", name), file);
}

}  // namespace perfmodel::sharding
