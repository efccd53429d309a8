#include "question_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain_text.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "sharding/table_names.hpp"
#include "sharding/torchrec_step.hpp"
#include "sharding/used_topology.hpp"

namespace perfmodel::sharding {
namespace {

constexpr std::string_view kAuto = "auto";

constexpr Named<bool SearchedSettings::*> kSettingNames[] = {
    {"deduplication", &SearchedSettings::deduplication},
    {"cache", &SearchedSettings::cache_share},
    {"wire", &SearchedSettings::wire}};

// The settings that a search may choose for each table: its software's, or --choose's. Rounded
// vectors are other numbers, so they must be asked for.
SearchedSettings searched_settings(const ShardQuestion& question, LoadedStudy& loaded) {
  SearchedSettings searched = loaded.study.network.settings;
  searched.wire = false;
  if (!question.choose.empty()) {
    searched = {};
    for (const auto& [name, member] : kSettingNames) {
      if (std::ranges::find(question.choose, name) == question.choose.end()) continue;
      searched.*member = true;
      if (loaded.study.network.settings.*member) continue;
      loaded.warnings.push_back(fmt::format("--choose {}: {} has no such choice for each table",
                                            name, plain_text(loaded.study.network.name)));
    }
  }
  searched.hot_rows = question.hot_rows == kAuto;
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

void change_table(const ShardQuestion& question, ShardedTable& table) {
  if (!question.dtype.empty()) table.element_bytes = *dtype_bytes(question.dtype);
  if (!question.optimizer.empty()) table.optimizer = *table_optimizer(question.optimizer);
  if (!question.wire_dtype.empty()) {
    table.forward_wire_bytes = table.backward_wire_bytes = dtype_bytes(question.wire_dtype);
  }
  if (question.deduplicate) table.deduplicated = true;
  if (!question.hot_rows.empty()) {
    const bool is_chosen = question.hot_rows == kAuto;
    table.hot_rows =
        is_chosen ? 0 : std::min<std::int64_t>(std::stoll(question.hot_rows), table.rows / 2);
  }
  if (question.zipf) table.skew.exponent = *question.zipf;
  if (!question.types.empty()) table.rules.types.clear();
  for (const std::string& type : question.types) {
    table.rules.types.push_back(*sharding_type(type));
  }
  if (!question.kernels.empty()) table.rules.kernels.clear();
  for (const std::string& kernel : question.kernels) {
    table.rules.kernels.push_back(*compute_kernel(kernel));
  }
  for (TableFeature& feature : table.features) {
    feature.pooling_factor *= question.pooling_scale.value_or(1);
  }
}

// Pipeline "prefetch" prefetches all caches; without it, none: a warning names a cache that says
// otherwise.
void apply_pipeline(LoadedStudy& loaded) {
  const bool prefetches = loaded.study.pipeline == TorchrecSettings::Pipeline::kPrefetchSparseDist;
  bool is_ignored = false;
  for (ShardedTable& table : loaded.study.tables) {
    is_ignored = is_ignored || (table.cache.prefetches && !prefetches);
    if (prefetches) table.cache.prefetches = true;
  }
  if (is_ignored && !loaded.is_torchrec) {
    loaded.warnings.push_back(
        "caches are prefetched with pipeline prefetch alone: here batches wait for their rows");
  }
}

constexpr Named<DensePart::Interaction> kInteractionNames[] = {
    {"cat", DensePart::Interaction::kConcatenation},
    {"dot", DensePart::Interaction::kDot},
    {"dcn", DensePart::Interaction::kLowRankCross}};

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

// Questions may name files. A name in a study or a topology is only looked up: its author must not
// choose the files that are opened here.
Unexpected at(Error error, const std::string& file, const char* pointer) {
  error.file = file;
  error.json_pointer = pointer;
  return Unexpected{std::move(error)};
}

Result<Topology> topology_of(const ShardQuestion& question, const std::string& in_study) {
  const TopologyCatalog& known = TopologyCatalog::builtin();
  if (!question.topology.empty()) return known.find(question.topology);
  const auto found = known.named(in_study);
  if (!found) return at(found.error(), question.tables, "/topology");
  return **found;
}

Result<Gpu> known_gpu(const ShardQuestion& question, const LoadedStudy& loaded,
                      std::vector<Gpu> gpus) {
  const bool in_study = !loaded.study.gpu.empty();
  const auto found =
      find_gpu(in_study ? loaded.study.gpu : loaded.topology.default_for.front(), gpus);
  if (found) return std::move(gpus[*found]);
  if (in_study) return at(found.error(), question.tables, "/gpu");
  return at(found.error(), question.topology, "/default_for/0");
}

Result<Gpu> gpu_of(const ShardQuestion& question, const LoadedStudy& loaded,
                   const std::filesystem::path& folder) {
  if (!question.gpu.empty()) return find_gpu(question.gpu, folder);
  if (loaded.study.gpu.empty() && loaded.topology.default_for.empty()) {
    return decline("expected a GPU (--gpu) or a topology (--topology), found neither");
  }
  return read_gpus(folder).and_then(
      [&](std::vector<Gpu> gpus) { return known_gpu(question, loaded, std::move(gpus)); });
}

// HugeCTR's layers and software that takes tables one by one have prices of their own.
bool runs_pytorch(const LoadedStudy& loaded) {
  const Launch otherwise = loaded.study.network.fuses_layers ? Launch::kGraphs : Launch::kEager;
  const bool fuses =
      loaded.study.network.fuses_layers && loaded.study.launch.value_or(otherwise) == otherwise;
  return !fuses && loaded.options.software == TableSoftware::kFused;
}

constexpr Launch kLaunches[] = {Launch::kEager, Launch::kGraphs, Launch::kCompiled};
constexpr Launching kLaunchings[] = {Launching::kEager, Launching::kCudaGraphs,
                                     Launching::kCompiled};

// The chosen way to launch, and the others for the range.
Result<void> set_steps(const ChosenOverheads& chosen, LoadedStudy& loaded) {
  const Launch launch = loaded.study.launch.value_or(Launch::kEager);
  const BatchOptions options = loaded.options;
  PERFMODEL_TRY(possible, BatchModel::make(loaded.study, loaded.gpu, loaded.topology, options));
  PERFMODEL_TRY(steps, torchrec_steps(loaded.study, loaded.gpu, loaded.topology, options,
                                      *chosen.table, kLaunchings));
  for (std::size_t i = 0; i < steps->size(); ++i) {
    if (kLaunches[i] == launch) {
      loaded.options.step = std::move((*steps)[i]);
    } else {
      loaded.options.other_steps.push_back(std::move((*steps)[i]));
    }
  }
  const std::vector<TablePlacement> whole(loaded.study.tables.size());
  loaded.warnings.push_back(fmt::format(
      "launched {}: the host of {} needs {:.2f} ms per batch, waits included, for whole tables",
      name_of(kLaunchNames, launch), chosen.file, loaded.options.step->of(whole).host_us() / 1e3));
  if (!chosen.warning.empty()) loaded.warnings.push_back(chosen.warning);
  return {};
}

}  // namespace

Result<void> set_job(const ShardQuestion& question, LoadedStudy& loaded) {
  ShardingStudy& study = loaded.study;
  if (question.world) {
    study.world = question.world;
    if (!question.local_world) study.local_world.reset();
  }
  if (question.local_world) study.local_world = question.local_world;
  if (question.batch) study.batch_per_rank = question.batch;
  if (!question.pipeline.empty()) study.pipeline = value_in(kPipelineNames, question.pipeline);
  if (question.free_share) study.free_share = question.free_share;
  if (!question.network.empty()) {
    auto network = ExchangeSoftware::parse(question.network);
    if (!network) {
      return decline("--network: " + network.error().message);
    }
    study.network = std::move(*network);
  }
  if (!question.launch.empty()) study.launch = value_in(kLaunchNames, question.launch);
  if (!study.world) {
    return decline("expected a number of GPUs (--world), found none");
  }
  if (!study.batch_per_rank) {
    return decline("expected a batch (--batch-per-gpu), found none");
  }
  return {};
}

Result<void> change_tables(const ShardQuestion& question, LoadedStudy& loaded) {
  for (ShardedTable& table : loaded.study.tables) change_table(question, table);
  apply_pipeline(loaded);
  loaded.study.searched = searched_settings(question, loaded);
  return {};
}

Result<void> change_dense_part(const ShardQuestion& question, LoadedStudy& loaded) {
  std::optional<DensePart>& dense = loaded.study.dense;
  if (question.interaction == "none") dense.reset();
  if (question.bottom || question.top || dense) {
    if (!dense) dense.emplace();
    const auto interaction = value_in(kInteractionNames, question.interaction);
    dense->interaction = interaction.value_or(dense->interaction);
    if (question.bottom) dense->bottom_mlp = *question.bottom;
    if (question.top) dense->top_mlp = *question.top;
  }
  if (!loaded.is_torchrec && !dense) {
    loaded.warnings.push_back(
        "no dense part (--bottom, --top or \"dense\"): times are those of the tables alone");
  }
  return {};
}

Result<void> choose_machine(const ShardQuestion& question, LoadedStudy& loaded) {
  const bool has_topology = !question.topology.empty() || !loaded.study.topology.empty();
  if (has_topology) {
    PERFMODEL_TRY(found, topology_of(question, loaded.study.topology));
    loaded.topology = std::move(*found);
  }
  PERFMODEL_TRY(gpu, find_data_folder().and_then([&](const std::filesystem::path& data) {
    return gpu_of(question, loaded, data / "gpus");
  }));
  loaded.gpu = std::move(*gpu);
  if (!has_topology) loaded.topology = topology_for(loaded.gpu);
  const double links = question.link_scale.value_or(1);
  scale_nvlink(loaded.topology, links * question.nvlink_scale.value_or(1));
  if (loaded.topology.nic) {
    loaded.topology.nic->bandwidth.value *= links * question.nic_scale.value_or(1);
  }
  std::vector<std::string> first = stand_ins(loaded.gpu);
  for (std::string& sentence : stand_ins(loaded.topology)) first.push_back(std::move(sentence));
  loaded.warnings.insert(loaded.warnings.begin(), first.begin(), first.end());
  const std::int64_t host = host_size(loaded.study, loaded.topology);
  if (const auto given = loaded.study.local_world; given && *given != host) {
    loaded.warnings.push_back(
        fmt::format("NVLink joins the machines of {}: a host has {} GPUs here and in plans, not {}",
                    loaded.topology.name, host, *given));
  }
  loaded.study.local_world = host;
  return {};
}

Result<void> choose_models(const ShardQuestion& question, LoadedStudy& loaded) {
  PERFMODEL_TRY(models, choose_kernel_models(question.models));
  if (!models->warning.empty()) loaded.warnings.push_back(models->warning);
  loaded.models = std::make_shared<const ChosenKernelModels>(std::move(*models));
  loaded.options.models = &loaded.models->models;
  if (!loaded.is_torchrec &&
      std::ranges::any_of(loaded.study.tables, [](const ShardedTable& table) {
        return table.cache.statistics.has_value();
      })) {
    loaded.warnings.push_back(
        "expected_lookups and distances of caches are TorchRec's: here the Zipf law of a table "
        "says what its cache misses");
  }
  return {};
}

Result<void> choose_host(const ShardQuestion& question, LoadedStudy& loaded) {
  if (loaded.is_torchrec || loaded.study.tables.empty()) return {};
  if (!runs_pytorch(loaded)) {
    loaded.warnings.push_back("times assume that the host keeps ahead of the GPU");
    return {};
  }
  return find_data_folder()
      .and_then([&](const std::filesystem::path& data) {
        return OverheadTables(data).choose(question.host, loaded.gpu);
      })
      .and_then([&](const ChosenOverheads& chosen) { return set_steps(chosen, loaded); });
}

}  // namespace perfmodel::sharding
