#include "table_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "study_tables.hpp"

namespace perfmodel::sharding {
namespace {

// ---- TorchRec -----------------------------------------------------------------------------------

constexpr std::array<std::pair<std::string_view, int>, 7> kDataTypes = {
    {{"FP32", 4}, {"FP16", 2}, {"BF16", 2}, {"INT8", 1}, {"UINT8", 1}, {"FP8", 1}, {"INT4", 1}}};

std::optional<int> data_type_bytes(std::string_view name) {
  for (const std::string_view prefix : {"DataType.", "torch."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const auto& [known, bytes] : kDataTypes) {
    if (name == known) return bytes;
  }
  return dtype_bytes(name);
}

std::vector<std::string_view> data_type_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, bytes] : kDataTypes) names.push_back(name);
  return names;
}

// Members of configurations that say nothing about speed or size.
constexpr const char* kIgnoredMembers[] = {"weight_init_max",
                                           "weight_init_min",
                                           "init_fn",
                                           "pruning_indices_remapping",
                                           "num_embeddings_post_pruning",
                                           "need_pos",
                                           "use_virtual_table",
                                           "input_dim",
                                           "total_num_buckets"};

void read_pooling(ObjectReader& reader, ShardedTable& table) {
  if (!reader.has("pooling")) return;
  std::string name = reader.string("pooling");
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos)
    name = name.substr(dot + 1);
  if (name != "SUM" && name != "MEAN" && name != "NONE") {
    return reader.reject("pooling", "SUM, MEAN or NONE");
  }
  table.pooled = name != "NONE";
}

ShardedTable parse_config(const Json& json, const std::string& pointer,
                          std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  ShardedTable table;
  table.name = reader.string("name");
  if (table.name.empty()) reader.reject("name", "a name");
  table.rows = reader.whole_number("num_embeddings", 1);
  table.dim = reader.whole_number("embedding_dim", 1);
  std::size_t features = 1;
  if (reader.has("feature_names")) {
    features = reader.strings("feature_names").size();
    if (features == 0) reader.reject("feature_names", "at least one feature");
  }
  table.features.assign(std::max<std::size_t>(1, features), {});
  if (reader.has("data_type")) {
    table.element_bytes =
        read_name(reader, "data_type", "a data type", data_type_bytes, data_type_names())
            .value_or(4);
  }
  read_pooling(reader, table);
  for (const char* member : kIgnoredMembers) {
    if (reader.has(member)) reader.any(member);
  }
  reader.finish();
  return table;
}

/// One number per feature.
template <class Set>
void read_per_feature(ObjectReader& reader, const char* key, std::size_t features, Set set) {
  if (!reader.has(key)) return;
  const Json* list = reader.array(key, true);
  if (list == nullptr) return;
  if (list->size() != features) {
    return reader.reject(key,
                         fmt::format("a number for each of the table's {} features", features));
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    const double number = item.is_number() ? item.get<double>() : 0;
    if (!(number > 0) || !std::isfinite(number)) {
      return reader.fail_at(fmt::format("{}/{}", reader.pointer(key), i), "a number above 0",
                            found(item));
    }
    set(i, number);
  }
}

/// TorchRec's enumerations print in lower case; Python code has them in upper case.
std::string lowered(std::string text) {
  if (const std::size_t dot = text.rfind('.'); dot != std::string::npos)
    text = text.substr(dot + 1);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void read_cache_params(ObjectReader& reader, TableCache& cache) {
  if (const auto share =
          reader.has("load_factor") ? reader.optional_positive("load_factor") : std::nullopt) {
    cache.load_factor = *share;
    cache.given = true;
    if (*share > 1) reader.reject("load_factor", "a share above 0, at most 1");
  }
  if (reader.has("prefetch_pipeline")) {
    const Json* value = reader.any("prefetch_pipeline");
    cache.prefetches = value != nullptr && value->is_boolean() && value->get<bool>();
  }
  for (const char* member :
       {"algorithm", "reserved_memory", "precision", "stats", "multipass_prefetch_config"}) {
    if (reader.has(member)) reader.any(member);
  }
}

// Returns whether it says how many ids the bags have.
bool parse_constraints(const Json& json, const std::string& pointer, ShardedTable& table,
                       std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  bool has_pooling = false;
  std::vector<TableFeature>& features = table.features;
  read_per_feature(reader, "pooling_factors", features.size(), [&](std::size_t i, double value) {
    features[i].pooling_factor = value;
    has_pooling = true;
  });
  read_per_feature(reader, "num_poolings", features.size(),
                   [&](std::size_t i, double value) { features[i].poolings = value; });
  read_per_feature(reader, "batch_sizes", features.size(), [&](std::size_t i, double value) {
    features[i].batch = static_cast<std::int64_t>(std::llround(value));
  });
  if (reader.has("sharding_types")) {
    table.rules.types = read_names<ShardingType>(
        reader, "sharding_types", "a sharding type",
        [](const std::string& name) { return sharding_type(lowered(name)); });
  }
  if (reader.has("compute_kernels")) {
    table.rules.kernels = read_names<ComputeKernel>(
        reader, "compute_kernels", "a compute kernel",
        [](const std::string& name) { return compute_kernel(lowered(name)); });
  }
  if (reader.has("min_partition")) {
    table.least_columns = reader.whole_number("min_partition", 1);
  }
  if (reader.has("is_weighted")) table.weighted = reader.boolean("is_weighted");
  if (reader.has("use_dedup")) table.deduplicated = reader.boolean("use_dedup");
  if (reader.has("output_dtype")) {
    table.output_bytes =
        read_name(reader, "output_dtype", "a data type", data_type_bytes, data_type_names());
  }
  read_part(
      reader, "cache_params", error,
      [&](ObjectReader& cache) { read_cache_params(cache, table.cache); }, true);
  reader.finish();
  return has_pooling;
}

ShardingStudy parse_torchrec_list(const Json& document, std::optional<Error>& error) {
  ShardingStudy study;
  study.network = ExchangeSoftware::parse("torchrec").value();
  const Json* list = &document;
  const Json* constraints = nullptr;
  std::string pointer;
  Json none = Json::object();
  if (document.is_object()) {
    ObjectReader root(document, "", error);
    list = root.array("tables");
    if (root.has("constraints")) constraints = root.object("constraints");
    if (root.has("batch_size")) study.batch_per_rank = root.whole_number("batch_size", 1);
    if (root.has("world_size")) study.world = root.whole_number("world_size", 1);
    if (root.has("local_world_size")) study.local_world = root.whole_number("local_world_size", 1);
    root.finish();
    pointer = "/tables";
  }
  if (list == nullptr || error) return study;
  ObjectReader root(none, pointer, error);
  if (list->empty()) root.fail_at(pointer, "at least one table", "none");
  TableList tables;
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    const std::string at = fmt::format("{}/{}", pointer, i);
    if (const auto problem = tables.add(parse_config((*list)[i], at, error), 1)) {
      error = error ? error
                    : Error{.code = ErrorCode::kFormat,
                            .message = "expected " + *problem,
                            .json_pointer = at + "/name"};
    }
  }
  study.tables = tables.take();
  std::size_t without = study.tables.size();
  if (constraints != nullptr) {
    for (const auto& [name, json] : constraints->items()) {
      const auto table = std::ranges::find(study.tables, name, &ShardedTable::name);
      if (table == study.tables.end()) {
        root.fail_at("/constraints", "constraints for tables of the list",
                     fmt::format("some for \"{}\"", name));
        break;
      }
      without -= parse_constraints(json, "/constraints/" + name, *table, error) ? 1 : 0;
    }
  }
  if (without > 0) {
    study.warnings.push_back(fmt::format(
        "{} of {} tables have no pooling_factors: their bags are taken to have 1 id each", without,
        study.tables.size()));
  }
  return study;
}

// ---- HugeCTR ------------------------------------------------------------------------------------

struct SparseInput {
  std::int64_t slots = 1;
  double ids_per_slot = 1;
};

void parse_hugectr_data(const Json& layer, const std::string& pointer,
                        std::map<std::string, SparseInput>& inputs, std::optional<Error>& error) {
  const auto sparse = layer.find("sparse");
  if (sparse == layer.end() || !sparse->is_array()) return;
  for (std::size_t i = 0; i < sparse->size(); ++i) {
    ObjectReader reader((*sparse)[i], fmt::format("{}/sparse/{}", pointer, i), error);
    const std::string name = reader.string(reader.has("top") ? "top" : "sparse_name");
    SparseInput input;
    if (reader.has("slot_num")) input.slots = reader.whole_number("slot_num", 1);
    if (reader.has("max_feature_num_per_sample")) {
      input.ids_per_slot =
          static_cast<double>(reader.whole_number("max_feature_num_per_sample", 1)) /
          static_cast<double>(input.slots);
    }
    if (reader.has("nnz_per_slot")) {
      const Json* ids = reader.any("nnz_per_slot");
      if (ids != nullptr && ids->is_number()) input.ids_per_slot = ids->get<double>();
      if (ids != nullptr && ids->is_array()) {
        double sum = 0;
        for (const Json& item : *ids) sum += item.is_number() ? item.get<double>() : 0;
        input.ids_per_slot = sum / static_cast<double>(std::max<std::size_t>(1, ids->size()));
      }
      if (!(input.ids_per_slot > 0)) reader.reject("nnz_per_slot", "numbers of ids above 0");
    }
    inputs[name] = input;
  }
}

TableOptimizer hugectr_optimizer(const Json& document) {
  const auto optimizer = document.find("optimizer");
  if (optimizer == document.end() || !optimizer->is_object()) return TableOptimizer::kSgd;
  const std::string type = lowered(optimizer->value("type", "sgd"));
  if (type == "adam") return TableOptimizer::kAdam;
  return type == "adagrad" ? TableOptimizer::kAdagrad : TableOptimizer::kSgd;
}

void parse_hugectr_embedding(const Json& layer, const std::string& pointer,
                             const std::map<std::string, SparseInput>& inputs,
                             TableOptimizer optimizer, TableList& tables,
                             std::optional<Error>& error) {
  ObjectReader reader(layer, pointer, error);
  const std::string name = reader.string("name"), bottom = reader.string("bottom");
  const Json* hparam = reader.object("sparse_embedding_hparam");
  if (hparam == nullptr || error) return;
  const auto input = inputs.find(bottom);
  if (input == inputs.end()) return reader.reject("bottom", "a sparse input of the data layer");
  ObjectReader sizes(*hparam, reader.pointer("sparse_embedding_hparam"), error);
  const std::int64_t dim = sizes.whole_number("embedding_vec_size", 1);
  std::vector<std::int64_t> rows;
  if (sizes.has("slot_size_array")) {
    rows = sizes.whole_numbers("slot_size_array", 1);
  } else if (sizes.has("max_vocabulary_size_per_gpu")) {
    rows.assign(1, sizes.whole_number("max_vocabulary_size_per_gpu", 1));
  } else {
    sizes.reject("slot_size_array", "the rows of every slot");
  }
  if (error) return;
  if (rows.size() > 1 && static_cast<std::int64_t>(rows.size()) != input->second.slots) {
    return sizes.reject("slot_size_array",
                        fmt::format("the rows of each of {} slots", input->second.slots));
  }
  for (std::size_t slot = 0; slot < rows.size() && !error; ++slot) {
    ShardedTable table;
    table.name = rows.size() == 1 ? name : fmt::format("{}_{}", name, slot);
    table.rows = rows[slot];
    table.dim = dim;
    table.optimizer = optimizer;
    table.features = {{.pooling_factor = input->second.ids_per_slot}};
    if (rows.size() == 1) {
      table.features.front().poolings = static_cast<double>(input->second.slots);
    }
    if (const auto problem = tables.add(std::move(table), 1)) {
      reader.reject("name", *problem);
    }
  }
}

ShardingStudy parse_hugectr_model(const Json& document, std::optional<Error>& error) {
  ShardingStudy study;
  study.network = ExchangeSoftware::parse("hugectr").value();
  ObjectReader root(document, "", error);
  const Json* layers = root.array("layers");
  if (layers == nullptr) return study;
  std::map<std::string, SparseInput> inputs;
  TableList tables;
  const TableOptimizer optimizer = hugectr_optimizer(document);
  for (std::size_t i = 0; i < layers->size() && !error; ++i) {
    const Json& layer = (*layers)[i];
    const std::string pointer = fmt::format("/layers/{}", i);
    if (!layer.is_object() || !layer.contains("type") || !layer["type"].is_string()) {
      root.fail_at(pointer, "a layer with a type", found(layer));
      break;
    }
    const std::string type = layer["type"];
    if (type == "Data") {
      parse_hugectr_data(layer, pointer, inputs, error);
    } else if (type.find("SparseEmbedding") != std::string::npos) {
      parse_hugectr_embedding(layer, pointer, inputs, optimizer, tables, error);
    }
  }
  study.tables = tables.take();
  if (study.tables.empty() && !error) {
    root.fail_at("/layers", "a sparse embedding layer", "none");
  }
  if (const auto solver = document.find("solver");
      solver != document.end() && solver->is_object()) {
    std::int64_t gpus = 0;
    if (const auto list = solver->find("gpu"); list != solver->end() && list->is_array()) {
      for (const Json& node : *list) gpus += node.is_array() ? std::ssize(node) : 1;
    }
    if (gpus > 0) study.world = gpus;
    const auto batch = solver->find("batchsize");
    if (gpus > 0 && batch != solver->end() && batch->is_number_integer()) {
      study.batch_per_rank = std::max<std::int64_t>(1, batch->get<std::int64_t>() / gpus);
    }
  }
  study.warnings.emplace_back(
      "of a HugeCTR model its tables, optimizer, GPUs and batch are read; its dense layers are "
      "not");
  return study;
}

ShardingStudy parse_list(const Json& document, std::optional<Error>& error) {
  if (document.is_object() && document.contains("layers")) {
    return parse_hugectr_model(document, error);
  }
  return parse_torchrec_list(document, error);
}

}  // namespace

bool is_table_list(std::string_view head) {
  return head.find("\"num_embeddings\"") != std::string_view::npos ||
         (head.find("\"layers\"") != std::string_view::npos &&
          head.find("\"Data\"") != std::string_view::npos) ||
         (head.find("\"solver\"") != std::string_view::npos &&
          head.find("\"batchsize\"") != std::string_view::npos);
}

Result<ShardingStudy> read_table_list(const std::filesystem::path& file) {
  return read_json_file(file, "list of tables", parse_list);
}

}  // namespace perfmodel::sharding
