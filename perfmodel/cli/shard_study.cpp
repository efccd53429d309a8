#include "shard_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "arguments.hpp"
#include "base/decimal_number.hpp"
#include "base/plain_text.hpp"
#include "interrupt_guard.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "sharding/eager_host.hpp"
#include "sharding/hugectr_plan_file.hpp"
#include "sharding/index_statistics.hpp"
#include "sharding/study_file.hpp"
#include "sharding/table_lists.hpp"
#include "sharding/tables_in_graph.hpp"
#include "sharding/torchrec_plan_file.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

constexpr std::size_t kHeadBytes = 4096;

// The first bytes of a file, to tell kinds of JSON apart; nothing of a compressed one.
std::string head_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(stream.gcount());
  return head;
}

bool is_study(const std::string& file) {
  if (file.ends_with(".csv") || file.ends_with(".csv.gz")) return true;
  return head_of(file).find("perfmodel-sharding-study") != std::string::npos;
}

Result<ShardingStudy> read_tables(const std::string& file) {
  if (is_study(file)) return read_sharding_study(file);
  if (is_table_list(head_of(file))) return read_table_list(file);
  const auto graph = read_execution_graph(file, {.dash_is_stdin = true});
  if (!graph) return Unexpected{graph.error()};
  auto found = tables_in_graph(*graph);
  if (!found) return Unexpected{found.error()};
  ShardingStudy study;
  study.tables = std::move(found->tables);
  study.batch_per_rank = found->batch;
  study.warnings = std::move(found->warnings);
  return study;
}

std::optional<int> dtype_bytes(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, int>, 7> kBytes = {{{"float32", 4},
                                                                       {"float16", 2},
                                                                       {"bfloat16", 2},
                                                                       {"int8", 1},
                                                                       {"fp32", 4},
                                                                       {"fp16", 2},
                                                                       {"bf16", 2}}};
  for (const auto& [known, bytes] : kBytes) {
    if (known == name) return bytes;
  }
  return std::nullopt;
}

CLI::Validator known_dtype() {
  return {[](std::string& text) -> std::string {
            if (dtype_bytes(text)) return "";
            return "expected float32, float16, bfloat16 or int8, found " + text;
          },
          ""};
}

template <class Find>
CLI::Validator known_name(const char* what, Find find) {
  return {[what, find](std::string& text) -> std::string {
            if (find(text)) return "";
            return fmt::format("expected {}, found {}", what, text);
          },
          ""};
}

constexpr std::string_view kAuto = "auto";

CLI::Validator count_or_auto() {
  return {[](std::string& text) -> std::string {
            constexpr std::size_t kMostDigits = 15;
            const bool number =
                !text.empty() && text.size() <= kMostDigits &&
                std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
            if (number || text == kAuto) return "";
            return "expected a number of rows or auto, found " + text;
          },
          ""};
}

struct SettingName {
  std::string_view name;
  bool SearchedSettings::*member;
};
constexpr SettingName kSettingNames[] = {{"deduplication", &SearchedSettings::deduplication},
                                         {"cache", &SearchedSettings::cache_share},
                                         {"wire", &SearchedSettings::wire}};

// What a search may choose for each table: what its software has, or what --choose says. Rounded
// vectors are other numbers, which nobody gets unasked.
SearchedSettings searched_settings(const ShardArguments& arguments, LoadedStudy& loaded) {
  SearchedSettings searched = loaded.study.network.settings;
  searched.wire = false;
  if (!arguments.choose.empty()) {
    searched = {};
    for (const SettingName& setting : kSettingNames) {
      if (std::ranges::find(arguments.choose, setting.name) == arguments.choose.end()) continue;
      searched.*setting.member = true;
      if (loaded.study.network.settings.*setting.member) continue;
      loaded.warnings.push_back(fmt::format("--choose {}: {} has no such choice for each table",
                                            setting.name, plain_text(loaded.study.network.name)));
    }
  }
  searched.hot_rows = arguments.hot_rows == kAuto;
  if (loaded.is_torchrec) return {};
  if (searched.hot_rows && std::ranges::none_of(loaded.study.tables, [](const ShardedTable& table) {
        return table.skew.exponent > 0;
      })) {
    loaded.warnings.push_back(
        "--hot-rows auto: ids are uniform, so no row is hot; --zipf, --access or --indices say "
        "otherwise");
  }
  return searched;
}

void override_tables(const ShardArguments& arguments, ShardingStudy& study) {
  for (ShardedTable& table : study.tables) {
    if (!arguments.dtype.empty()) table.element_bytes = *dtype_bytes(arguments.dtype);
    if (!arguments.optimizer.empty()) table.optimizer = *table_optimizer(arguments.optimizer);
    if (!arguments.wire_dtype.empty()) {
      table.forward_wire_bytes = table.backward_wire_bytes = dtype_bytes(arguments.wire_dtype);
    }
    if (arguments.deduplicate) table.deduplicated = true;
    if (!arguments.hot_rows.empty()) {
      const bool chosen = arguments.hot_rows == kAuto;
      table.hot_rows =
          chosen ? 0 : std::min<std::int64_t>(std::stoll(arguments.hot_rows), table.rows / 2);
    }
    if (arguments.zipf) table.skew.exponent = *arguments.zipf;
    for (const std::string& type : arguments.types) {
      if (type == arguments.types.front()) table.rules.types.clear();
      table.rules.types.push_back(*sharding_type(type));
    }
    for (const std::string& kernel : arguments.kernels) {
      if (kernel == arguments.kernels.front()) table.rules.kernels.clear();
      table.rules.kernels.push_back(*compute_kernel(kernel));
    }
    for (TableFeature& feature : table.features) {
      feature.pooling_factor *= arguments.pooling_scale.value_or(1);
    }
  }
}

constexpr std::pair<std::string_view, DensePart::Interaction> kInteractionNames[] = {
    {"cat", DensePart::Interaction::kConcatenation},
    {"dot", DensePart::Interaction::kDot},
    {"dcn", DensePart::Interaction::kLowRankCross}};

void override_dense(const ShardArguments& arguments, ShardingStudy& study) {
  if (arguments.interaction == "none") study.dense.reset();
  const bool given = arguments.bottom || arguments.top || study.dense;
  for (const auto& [name, interaction] : kInteractionNames) {
    if (given && arguments.interaction == name) {
      if (!study.dense) study.dense.emplace();
      study.dense->interaction = interaction;
    }
  }
  if (!arguments.bottom && !arguments.top) return;
  if (!study.dense) study.dense.emplace();
  if (arguments.bottom) study.dense->bottom_mlp = *arguments.bottom;
  if (arguments.top) study.dense->top_mlp = *arguments.top;
}

void scale_nccl(Topology::NcclTimes& nccl, double factor) {
  nccl.low_rate.value *= factor;
  nccl.all_to_all.low_rate.value *= factor;
  for (Topology::NcclTimes::Rates& rates : nccl.rates) {
    rates.all_reduce.value *= factor;
    rates.all_gather.value *= factor;
    rates.reduce_scatter.value *= factor;
    rates.all_to_all.value *= factor;
  }
}

void scale_nvlink(Topology& topology, double factor) {
  topology.intra.gpu_bandwidth.value *= factor;
  topology.intra.channel_bandwidth.value *= factor;
  topology.intra.p2p_bandwidth.value *= factor;
  topology.intra.all_to_all_bandwidth.value *= factor;
  for (Topology::Curve& curve : topology.curves) curve.bus.value *= factor;
  if (topology.nccl) scale_nccl(*topology.nccl, factor);
}
void scale_nics(Topology& topology, double factor) {
  if (topology.nic) topology.nic->bandwidth.value *= factor;
}

// Flags may name files. What a study or a topology names is only looked up: who wrote it must not
// choose what is opened here.
Unexpected at(Error error, const std::string& file, const char* pointer) {
  error.file = file;
  error.json_pointer = pointer;
  return Unexpected{std::move(error)};
}

Result<Topology> topology_of(const ShardArguments& arguments, const std::string& in_study) {
  const TopologyCatalog& known = TopologyCatalog::builtin();
  if (!arguments.topology.empty()) return known.find(arguments.topology);
  const auto found = known.named(in_study);
  if (!found) return at(found.error(), arguments.tables, "/topology");
  return **found;
}

Result<Gpu> gpu_of(const ShardArguments& arguments, const LoadedStudy& loaded) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  if (!arguments.gpu.empty()) return find_gpu(arguments.gpu, *data / "gpus");
  const bool in_study = !loaded.study.gpu.empty();
  if (!in_study && loaded.topology.default_for.empty()) {
    return fail(ErrorCode::kImpossible,
                "expected a GPU (--gpu) or a topology (--topology), found neither");
  }
  auto gpus = read_gpus(*data / "gpus");
  if (!gpus) return Unexpected{gpus.error()};
  const auto found =
      find_gpu(in_study ? loaded.study.gpu : loaded.topology.default_for.front(), *gpus);
  if (found) return std::move((*gpus)[*found]);
  if (in_study) return at(found.error(), arguments.tables, "/gpu");
  return at(found.error(), arguments.topology, "/default_for/0");
}

Result<void> choose_machine(const ShardArguments& arguments, LoadedStudy& loaded) {
  const bool has_topology = !arguments.topology.empty() || !loaded.study.topology.empty();
  if (has_topology) {
    auto found = topology_of(arguments, loaded.study.topology);
    if (!found) return Unexpected{found.error()};
    loaded.topology = std::move(*found);
  }
  auto gpu = gpu_of(arguments, loaded);
  if (!gpu) return Unexpected{gpu.error()};
  loaded.gpu = std::move(*gpu);
  if (!has_topology) loaded.topology = topology_for(loaded.gpu);
  const double links = arguments.link_scale.value_or(1);
  scale_nvlink(loaded.topology, links * arguments.nvlink_scale.value_or(1));
  scale_nics(loaded.topology, links * arguments.nic_scale.value_or(1));
  return {};
}

constexpr std::string_view kPipelines[] = {"none", "sparse_dist", "prefetch"};

std::optional<TorchrecSettings::Pipeline> pipeline_of(const std::string& name) {
  const auto at = std::find(std::begin(kPipelines), std::end(kPipelines), name);
  if (at == std::end(kPipelines)) return std::nullopt;
  return static_cast<TorchrecSettings::Pipeline>(at - std::begin(kPipelines));
}

double elements_of(const ShardedTable& table) {
  return static_cast<double>(table.rows) * static_cast<double>(table.dim);
}

// robe:m=27e6,Z=32,iterations=1,kernel=reference,tables=a+b; ratio=1000 in the place of m.
Result<void> parse_compression(const std::string& text, ShardingStudy& study) {
  const auto refuse = [&](std::string_view found) {
    return fail(ErrorCode::kImpossible,
                fmt::format("--compress: expected robe:m=ELEMENTS or robe:ratio=FACTOR "
                            "[,Z=COLUMNS][,iterations=FACTOR][,kernel=reference|chunked]"
                            "[,tables=NAME+NAME|best] (hashednet: Z=1), found {}",
                            found));
  };
  HashedArray array;
  const bool by_elements = text.starts_with("hashednet:");
  if (!by_elements && !text.starts_with("robe:")) return refuse(text);
  if (by_elements) array.chunk = 1;
  std::vector<std::string> names;
  bool chooses = false;
  std::optional<double> ratio;
  std::string_view rest = std::string_view(text).substr(text.find(':') + 1);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equal = item.find('=');
    if (equal == std::string_view::npos) return refuse(item);
    const std::string key(item.substr(0, equal)), value(item.substr(equal + 1));
    if (key == "tables" && value == "best") {
      chooses = true;
      continue;
    }
    if (key == "tables") {
      for (std::string_view list = value; !list.empty();) {
        const std::string_view name = list.substr(0, list.find('+'));
        names.emplace_back(name);
        list.remove_prefix(std::min(list.size(), name.size() + 1));
      }
      continue;
    }
    if (key == "kernel") {
      if (value != "reference" && value != "chunked") return refuse(item);
      array.reference_kernel = value == "reference";
      continue;
    }
    double number = 0;
    if (!read_decimal(value, number) || !(number > 0) || !std::isfinite(number)) {
      return refuse(item);
    }
    if (key == "m") {
      array.elements = number;
    } else if (key == "ratio") {
      if (number < 1) return refuse(item);
      ratio = number;
    } else if (key == "Z" && !by_elements) {
      array.chunk = number;
    } else if (key == "iterations") {
      array.iterations_multiplier = number;
    } else {
      return refuse(item);
    }
  }
  for (const std::string& name : names) {
    if (std::none_of(study.tables.begin(), study.tables.end(),
                     [&](const ShardedTable& table) { return table.name == name; })) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("--compress: expected names of tables, found {}", name));
    }
  }
  double hashed_elements = 0;
  for (ShardedTable& table : study.tables) {
    if (!names.empty() && std::find(names.begin(), names.end(), table.name) == names.end()) {
      continue;
    }
    hashed_elements += elements_of(table);
    if (chooses) {  // the search says which of them
      table.rules.kernels = {ComputeKernel::kDense, ComputeKernel::kFused, ComputeKernel::kHashed};
      continue;
    }
    table.rules.types = {ShardingType::kDataParallel};
    table.rules.kernels = {ComputeKernel::kHashed};
  }
  if (ratio) array.elements = std::max(1.0, std::ceil(hashed_elements / *ratio));
  if (array.elements < 1 || array.chunk < 1) return refuse(text);
  study.hashed = array;
  return {};
}

// Tables whose access is known from recorded indices.
Result<void> read_statistics(const ShardArguments& arguments, ShardingStudy& study) {
  const auto fit = [&](ShardedTable& table, const AccessHistogram& histogram, double touched) {
    table.skew = fitted_skew(histogram, static_cast<double>(table.rows), touched);
    study.warnings.push_back(
        fmt::format("table {}: recorded indices fit Zipf {:.3g}", table.name, table.skew.exponent));
  };
  if (!arguments.access.empty()) {
    const auto histograms = read_access_histograms(arguments.access);
    if (!histograms) return Unexpected{histograms.error()};
    const bool named = !histograms->front().table.empty();
    bool said = false;
    for (ShardedTable& table : study.tables) {
      const auto of = std::ranges::find_if(*histograms, [&](const AccessHistogram& histogram) {
        return !named || histogram.table == table.name;
      });
      if (of == histograms->end()) continue;
      const double ids =
          distinct_ids(table, *study.batch_per_rank) * static_cast<double>(*study.world);
      const double touched = std::min(static_cast<double>(table.rows), std::max(1.0, ids));
      table.skew = fitted_skew(*of, static_cast<double>(table.rows), touched);
      if (!said) {
        study.warnings.push_back(fmt::format("access histograms fit Zipf {:.3g} for table {}",
                                             table.skew.exponent, table.name));
      }
      said = true;
    }
    if (!said) {
      return fail(
          ErrorCode::kImpossible,
          fmt::format("--access: expected histograms of tables of the study, found those of "
                      "{}",
                      histograms->front().table));
    }
  }
  for (const std::string& text : arguments.indices) {
    const std::size_t equal = text.find('=');
    const auto table = std::ranges::find(study.tables, text.substr(0, equal), &ShardedTable::name);
    if (equal == std::string::npos || table == study.tables.end()) {
      return fail(
          ErrorCode::kImpossible,
          fmt::format("--indices: expected TABLE=FILE with a table of the study, found {}", text));
    }
    const auto sample = read_index_sample(text.substr(equal + 1));
    if (!sample) return Unexpected{sample.error()};
    if (sample->largest >= table->rows) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("--indices: expected indices below the {} rows of table {}, found {}",
                              table->rows, table->name, sample->largest));
    }
    fit(*table, sample->histogram, static_cast<double>(sample->touched_rows));
  }
  return {};
}

// How much of the time of eager software is the host's.
Result<void> choose_host(const ShardArguments& arguments, LoadedStudy& loaded) {
  const bool is_eager = loaded.study.launch == Launch::kEager;
  if (!is_eager || arguments.host_us > 0 || loaded.is_torchrec) return {};
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const auto chosen = OverheadTables(*data).choose(arguments.host, loaded.gpu);
  if (!chosen) return Unexpected{chosen.error()};
  const auto needs = eager_host(loaded.study, loaded.gpu, *chosen->table);
  if (!needs) return Unexpected{needs.error()};
  loaded.host = *needs;
  loaded.warnings.push_back(fmt::format(
      "launched op by op: the host of {} needs {:.2f} ms per batch and {:.0f} us per table",
      chosen->file, needs->batch_us / 1e3, needs->kinds[HostNeeds::kVectors].table_us));
  if (!chosen->warning.empty()) loaded.warnings.push_back(chosen->warning);
  return {};
}

TableSoftware software_of(const ShardArguments& arguments) {
  return arguments.software == "fused" ? TableSoftware::kFused : TableSoftware::kPerTable;
}

// Pipeline "prefetch" prefetches all caches; without it, none: a cache that says otherwise is told.
void apply_pipeline(LoadedStudy& loaded) {
  const bool prefetches = loaded.study.pipeline == TorchrecSettings::Pipeline::kPrefetchSparseDist;
  bool said = false;
  for (ShardedTable& table : loaded.study.tables) {
    said = said || (table.cache.prefetches && !prefetches);
    if (prefetches) table.cache.prefetches = true;
  }
  if (said && !loaded.is_torchrec) {
    loaded.warnings.push_back(
        "caches are prefetched with pipeline prefetch alone: here batches wait for their rows");
  }
}

}  // namespace

void add_shard_options(CLI::App& app, ShardArguments& arguments) {
  app.add_option("tables", arguments.tables,
                 "Study (JSON), list of tables (CSV table,rows,dim,pooling) or execution graph")
      ->required()
      ->type_name("TABLES");
  app.add_option("--gpu", arguments.gpu, "Name of a known GPU, or a GPU file")->type_name("NAME");
  app.add_option("--topology", arguments.topology,
                 "How the GPUs are connected (default: the usual node of this GPU)")
      ->type_name("NAME");
  app.add_option("--world", arguments.world, "Number of GPUs")->check(at_least(1))->type_name("N");
  app.add_option("--gpus-per-host", arguments.local_world,
                 "GPUs of each host (default: as many as the topology has)")
      ->check(at_least(1))
      ->type_name("N");
  app.add_option("--batch-per-gpu", arguments.batch, "Samples per GPU and batch")
      ->check(at_least(1))
      ->type_name("B");
  app.add_option("--costs", arguments.costs,
                 "calibrated: time per batch; torchrec: the rating of TorchRec's planner")
      ->check(CLI::IsMember({"calibrated", "torchrec"}))
      ->type_name("MODE");
  app.add_option("--dtype", arguments.dtype, "Elements of all tables")
      ->check(known_dtype())
      ->type_name("TYPE");
  app.add_option("--wire-dtype", arguments.wire_dtype, "Elements of exchanged vectors")
      ->check(known_dtype())
      ->type_name("TYPE");
  app.add_option("--optimizer", arguments.optimizer,
                 "Of all tables: sgd, rowwise_adagrad, adagrad, adam, none")
      ->check(known_name("an optimizer of tables", table_optimizer))
      ->type_name("NAME");
  app.add_option("--zipf", arguments.zipf, "Exponent of the Zipf law that ids follow; 0: uniform")
      ->check(at_least(0))
      ->type_name("S");
  app.add_flag("--deduplicate", arguments.deduplicate,
               "Exchange each distinct id of a batch once; vectors are pooled where they are used");
  app.add_option("--types", arguments.types, "Ways to shard that plans may use, for all tables")
      ->delimiter(',')
      ->check(known_name("a way to shard such as table_wise", sharding_type))
      ->type_name("TYPE,...");
  app.add_option("--kernels", arguments.kernels,
                 "Kernels that plans may use: dense, fused, fused_uvm, fused_uvm_caching")
      ->delimiter(',')
      ->check(known_name("a kernel such as fused_uvm", compute_kernel))
      ->type_name("KERNEL,...");
  app.add_option("--pipeline", arguments.pipeline,
                 "none, sparse_dist (ids of the next batch beside this one) or prefetch")
      ->check(CLI::IsMember({"none", "sparse_dist", "prefetch"}))
      ->type_name("NAME");
  add_widths(app, "--bottom", arguments.bottom, "Bottom MLP, the dense features first");
  add_widths(app, "--top", arguments.top, "Top MLP behind the interaction, last width 1");
  app.add_option("--reserve", arguments.free_share, "Share of each GPU's memory that stays free")
      ->check(between(0, 0.99))
      ->type_name("SHARE");
  app.add_option("--software", arguments.software,
                 "fused: all tables of a GPU in one kernel (TorchRec, HugeCTR); per-table: lookups "
                 "and updates one by one (TensorFlow)")
      ->check(CLI::IsMember({"fused", "per-table"}))
      ->type_name("KIND");
  app.add_option("--host-us", arguments.host_us,
                 "Time that the host needs per batch, whatever --launch says")
      ->check(at_least(0))
      ->type_name("US");
  app.add_option("--launch", arguments.launch,
                 "eager: the host launches op by op and may be the limit (default for lists of "
                 "TorchRec and --network torchrec); graphs: it keeps ahead")
      ->check(CLI::IsMember({"eager", "graphs"}))
      ->type_name("HOW");
  app.add_option("--host", arguments.host,
                 "Host of --launch eager: reference, measured or a file of overheads")
      ->type_name("HOST");
  app.add_option("--network", arguments.network,
                 "How ranks exchange: plain, torchrec or hugectr, then hierarchical, one-shot, "
                 "overlap, no-p2p, peer-us=US, straggler-us=US, nics=N, ... behind commas")
      ->type_name("SPEC");
  app.add_option(
         "--hot-rows", arguments.hot_rows,
         "So many of the most frequent rows of each table have a copy on every GPU; auto: the "
         "search chooses the number for each table")
      ->check(count_or_auto())
      ->type_name("N|auto");
  app.add_option("--choose", arguments.choose,
                 "What the search may choose for each table that leaves it open: deduplication, "
                 "cache (share of rows), wire (2 bytes per element), or none (default: what the "
                 "software of --network has for single tables, but for wire)")
      ->delimiter(',')
      ->check(CLI::IsMember({"deduplication", "cache", "wire", "none"}))
      ->type_name("SETTING,...");
  app.add_option("--interaction", arguments.interaction,
                 "How vectors meet: cat, dot, dcn, or none (no dense part)")
      ->check(CLI::IsMember({"cat", "dot", "dcn", "none"}))
      ->type_name("KIND");
  app.add_option("--indices", arguments.indices,
                 "Recorded indices of a table (.npy, or .csv with a column index) say how often "
                 "rows are read")
      ->type_name("TABLE=FILE");
  app.add_option("--access", arguments.access,
                 "Access histogram (reuse_gt, reuse_le, frac_unique_rows, frac_lookups) of all "
                 "tables, or with a column table of each")
      ->type_name("FILE");
  app.add_option("--compress", arguments.compress,
                 "Keep tables in one hashed array on every GPU: robe:m=ELEMENTS,Z=COLUMNS or "
                 "robe:ratio=FACTOR; tables=best lets the search choose which")
      ->type_name("SPEC");
  app.add_option("--time-budget", arguments.time_budget_s, "Seconds that the search may take")
      ->check(at_least(0))
      ->type_name("S");
  app.add_option("--seed", arguments.seed, "Of the search")->type_name("N");
  add_models_option(app, arguments.models);
  app.add_flag("--json", arguments.json, "Print one JSON document");
}

Result<LoadedStudy> load_study(const ShardArguments& arguments) {
  auto study = read_tables(arguments.tables);
  if (!study) return Unexpected{study.error()};
  LoadedStudy loaded{.file = file_name(arguments.tables),
                     .study = std::move(*study),
                     .gpu = {},
                     .topology = {},
                     .models = {},
                     .warnings = {}};
  loaded.is_torchrec = arguments.costs == "torchrec";
  if (arguments.world) {
    loaded.study.world = arguments.world;
    if (!arguments.local_world) loaded.study.local_world.reset();
  }
  if (arguments.local_world) loaded.study.local_world = arguments.local_world;
  if (arguments.batch) loaded.study.batch_per_rank = arguments.batch;
  if (!arguments.pipeline.empty()) loaded.study.pipeline = pipeline_of(arguments.pipeline);
  if (arguments.free_share) loaded.study.free_share = arguments.free_share;
  if (!arguments.network.empty()) {
    auto network = ExchangeSoftware::parse(arguments.network);
    if (!network) {
      return fail(ErrorCode::kImpossible, "--network: " + network.error().message);
    }
    loaded.study.network = std::move(*network);
    if (loaded.study.network.name.starts_with("torchrec") && !loaded.study.launch) {
      loaded.study.launch = Launch::kEager;
    }
  }
  if (!arguments.launch.empty()) {
    loaded.study.launch = arguments.launch == "eager" ? Launch::kEager : Launch::kGraphs;
  }
  if (!loaded.study.world) {
    return fail(ErrorCode::kImpossible, "expected a number of GPUs (--world), found none");
  }
  if (!loaded.study.batch_per_rank) {
    return fail(ErrorCode::kImpossible, "expected a batch (--batch-per-gpu), found none");
  }
  if (auto good = read_statistics(arguments, loaded.study); !good) return Unexpected{good.error()};
  loaded.warnings = loaded.study.warnings;
  override_tables(arguments, loaded.study);
  apply_pipeline(loaded);
  loaded.study.searched = searched_settings(arguments, loaded);
  override_dense(arguments, loaded.study);
  if (auto chosen = choose_machine(arguments, loaded); !chosen) return Unexpected{chosen.error()};
  std::vector<std::string> first = stand_ins(loaded.gpu);
  for (std::string& sentence : stand_ins(loaded.topology)) first.push_back(std::move(sentence));
  loaded.warnings.insert(loaded.warnings.begin(), first.begin(), first.end());
  if (!loaded.study.local_world) {
    loaded.study.local_world =
        std::min<std::int64_t>(*loaded.study.world, loaded.topology.gpus_per_node);
  }
  if (!arguments.compress.empty()) {
    if (auto good = parse_compression(arguments.compress, loaded.study); !good) {
      return Unexpected{good.error()};
    }
  }
  if (!loaded.is_torchrec && !loaded.study.dense) {
    loaded.warnings.push_back(
        "no dense part (--bottom, --top or \"dense\"): times are those of the tables alone");
  }
  auto models = choose_kernel_models(arguments.models);
  if (!models) return Unexpected{models.error()};
  loaded.models = std::move(*models);
  if (!loaded.models.warning.empty()) loaded.warnings.push_back(loaded.models.warning);
  const bool has_distances =
      std::any_of(loaded.study.tables.begin(), loaded.study.tables.end(),
                  [](const ShardedTable& table) { return table.cache.statistics.has_value(); });
  if (!loaded.is_torchrec && has_distances) {
    loaded.warnings.push_back(
        "expected_lookups and distances of caches are TorchRec's: here the Zipf law of a table "
        "says "
        "what its cache misses");
  }
  if (auto good = choose_host(arguments, loaded); !good) return Unexpected{good.error()};
  if (!loaded.is_torchrec && arguments.host_us == 0 && !loaded.host) {
    loaded.warnings.push_back(
        "times assume that the host keeps ahead of the GPU (CUDA graphs); eager PyTorch: --launch "
        "eager");
  }
  if (!loaded.is_torchrec && !calibration_of(loaded.gpu, software_of(arguments)).known) {
    loaded.warnings.push_back(
        fmt::format("no measured DLRM system with {}: times are not calibrated", loaded.gpu.name));
  }
  return loaded;
}

Result<BatchModel> batch_model(const LoadedStudy& loaded, const ShardArguments& arguments) {
  return BatchModel::make(
      loaded.study, loaded.gpu, loaded.topology,
      {.software = arguments.software == "fused" ? TableSoftware::kFused : TableSoftware::kPerTable,
       .host_us = arguments.host_us,
       .host = loaded.host,
       .models = &loaded.models.models});
}

// TorchRec writes the GB/s of a data sheet as 2^30 bytes, and counts both directions of NVLink.
TorchrecTopology LoadedStudy::torchrec_topology() const {
  constexpr double kGiB = TorchrecTopology::kGiBPerSecond * 1e-9;  // of bytes per second, per ms
  TorchrecTopology result = study.torchrec.value_or(TorchrecTopology{});
  result.world = *study.world;
  result.local_world = *study.local_world;
  if (study.torchrec) return result;
  result.hbm_cap = static_cast<std::int64_t>(gpu.dram_gb * static_cast<double>(1 << 30));
  result.hbm_bandwidth = kGiB * gpu.dram_bandwidth.value;
  if (gpu.pcie_bandwidth.value > 0) result.host_link_bandwidth = kGiB * gpu.pcie_bandwidth.value;
  const double link =
      gpu.link_bandwidth.value > 0 ? gpu.link_bandwidth.value : topology.intra.gpu_bandwidth.value;
  result.intra_host_bandwidth = kGiB * link;
  if (topology.nic) {
    result.inter_host_bandwidth =
        kGiB * topology.nic->bandwidth.value * topology.nic->count / topology.gpus_per_node;
  }
  return result;
}

TorchrecSettings LoadedStudy::torchrec_settings() const {
  return {.batch = *study.batch_per_rank,
          .pipeline = study.pipeline.value_or(TorchrecSettings::Pipeline::kNone)};
}

std::string_view LoadedStudy::pipeline_name() const {
  using Pipeline = TorchrecSettings::Pipeline;
  const Pipeline otherwise = is_torchrec ? Pipeline::kNone : Pipeline::kSparseDist;
  return kPipelines[static_cast<std::size_t>(study.pipeline.value_or(otherwise))];
}

Result<std::vector<TablePlacement>> load_plan(const std::string& file, const LoadedStudy& loaded) {
  const std::string head = head_of(file);
  if (head.find("\"shard_matrix\"") != std::string::npos ||
      head.find("strategy\"") != std::string::npos) {
    const auto plan = read_hugectr_plan(file);
    if (!plan) return Unexpected{plan.error()};
    return hugectr_placements(*plan, loaded.study.tables, *loaded.study.world,
                              *loaded.study.local_world);
  }
  const auto plan = read_torchrec_plan(file);
  if (!plan) return Unexpected{plan.error()};
  if (plan->world && *plan->world != *loaded.study.world) {
    return fail(ErrorCode::kImpossible,
                fmt::format("{}: expected a plan for {} GPUs, found one for {}", file_name(file),
                            *loaded.study.world, *plan->world));
  }
  return match_plan(loaded.study.tables, *plan);
}

SearchOptions search_options(const ShardArguments& arguments, std::size_t keep) {
  SearchOptions options;
  options.time_budget_s = arguments.time_budget_s;
  options.seed = arguments.seed;
  options.keep = keep;
  const bool shown = progress_shown();
  options.progress = [shown](const SearchProgress& progress) {
    if (shown) {
      fmt::print(stderr, "\rsearch: best {:.4g}, bound {:.4g}, {:.1f} s, {} moves   ",
                 progress.best, progress.lower_bound, progress.seconds, progress.moves);
      std::fflush(stderr);
    }
    return !InterruptGuard::interrupted();
  };
  return options;
}

}  // namespace perfmodel::cli
