#include "perfmodel/sharding/detail/batch_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "batch_job.hpp"
#include "batch_schedule.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "placed_shards.hpp"
#include "refuse_table.hpp"
#include "used_topology.hpp"

namespace perfmodel::sharding {
namespace {

// The optimizer that most tables have, whatever their order: the dense layers have it, too.
TableOptimizer usual_optimizer(const std::vector<ShardedTable>& tables) {
  std::map<TableOptimizer, std::size_t> counts = {{TableOptimizer::kSgd, 0}};
  for (const ShardedTable& table : tables) ++counts[table.optimizer];
  return std::ranges::max_element(counts, {}, [](const auto& of) { return of.second; })->first;
}

Result<void> check_table(const ShardedTable& table, std::int64_t world) {
  const auto refuse = [&](std::string_view expected, const auto& found) {
    return refuse_table(table, expected, found);
  };
  if (table.rows < 1 || table.dim < 1) {
    return refuse("at least one row and column", fmt::format("{} x {}", table.rows, table.dim));
  }
  if (table.features.empty()) return refuse("a feature that reads it", "none");
  for (const TableFeature& feature : table.features) {
    if (!feature.rank_batches.empty() && std::ssize(feature.rank_batches) != world) {
      return refuse(fmt::format("a batch of each of {} ranks", world),
                    std::ssize(feature.rank_batches));
    }
    const bool good = feature.pooling_factor > 0 && std::isfinite(feature.pooling_factor) &&
                      feature.poolings > 0 && std::isfinite(feature.poolings);
    if (!good) {
      return refuse("a pooling factor above 0",
                    fmt::format("{} x {}", feature.pooling_factor, feature.poolings));
    }
  }
  if (!(table.skew.exponent >= 0) || !(table.skew.shift > -1)) {
    return refuse("a Zipf exponent of at least 0 and a shift above -1",
                  fmt::format("{} and {}", table.skew.exponent, table.skew.shift));
  }
  if (table.hot_rows < 0 || table.hot_rows >= table.rows) {
    return refuse(fmt::format("0 to {} hot rows", table.rows - 1), table.hot_rows);
  }
  const double share = table.cache.load_factor;
  if (!(share > 0) || share > 1) return refuse("a load factor above 0, up to 1", share);
  return {};
}

// Tables that differ in nothing that costs look at have one key.
std::string key_of(const ShardedTable& table) {
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", table.rows, table.dim, table.element_bytes,
                  table.output_bytes.value_or(0), static_cast<int>(table.optimizer), table.weighted,
                  table.pooled, table.skew.exponent, table.skew.shift, table.cache.load_factor);
  key += fmt::format(" {} {} {} {}", table.deduplicated, table.hot_rows,
                     table.forward_wire_bytes.value_or(0), table.backward_wire_bytes.value_or(0));
  for (const TableFeature& feature : table.features) {
    key += fmt::format(" {} {} {} {}", feature.pooling_factor, feature.poolings,
                       feature.batch.value_or(0), fmt::join(feature.rank_batches, ","));
  }
  return key;
}

Result<void> check_dot_products(const ShardingStudy& study) {
  if (!study.dense || study.dense->forward_us || study.tables.empty() ||
      study.dense->interaction != DensePart::Interaction::kDot) {
    return {};
  }
  std::int64_t width = study.tables.front().dim;
  if (!study.dense->bottom_mlp.empty()) width = study.dense->bottom_mlp.back();
  for (const ShardedTable& table : study.tables) {
    if (table.dim == width) continue;
    return decline(
        fmt::format("table {}: expected {} columns, as dot products take vectors of one width "
                    "(--interaction cat or dcn take any), found {}",
                    table.name, width, table.dim));
  }
  return {};
}

// Work that is the same on all ranks becomes a part of each.
void move_to_ranks(BatchTime& batch) {
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    double& us = batch.step->device(part);
    for (BatchRank& rank : batch.ranks) rank.parts[part] = std::max(0.0, rank.parts[part] + us);
    us = 0;
  }
}

// TorchRec's graphs send ids of 4 bytes, and lengths of bags as well.
double sent_by_torchrec(const ShardLoad& rank, Load of_rank) {
  const double bytes = rank[of_rank], ids = rank[Load::kForwardIds];
  if (of_rank != Load::kIdBytes || ids <= 0) return bytes;
  constexpr double kSent = 4, kId = 8, kLength = 4;  // bytes
  const double lengths = kLength * rank[Load::kForwardBags] / ids;
  return bytes * (kSent + lengths) / (kId + lengths);
}

Result<double> microseconds(const Result<CollectiveTime>& time) {
  if (!time) return Unexpected{time.error()};
  return time->time.count();
}

}  // namespace

Result<BatchModel> BatchModel::make(const ShardingStudy& study, const Gpu& gpu,
                                    const Topology& topology, const BatchOptions& options) {
  if (!study.world || !study.batch_per_rank || *study.world < 1 || *study.batch_per_rank < 1) {
    return decline("expected a world and a batch of at least 1, found none");
  }
  BatchModel model;
  model.study_ = study;
  model.gpu_ = gpu;
  model.topology_ = used_topology(study.network, topology);
  model.options_ = options;
  model.local_world_ = host_size(study, topology);
  if (model.local_world_ < 1 || model.local_world_ > topology.gpus_per_node ||
      *study.world % model.local_world_ != 0) {
    return decline(
        fmt::format("expected full hosts of up to {} GPUs ({}), found {} ranks, {} per host",
                    topology.gpus_per_node, topology.name, *study.world, model.local_world_));
  }
  if (model.nodes() > 1 && !topology.nic) {
    return decline(fmt::format(
        "expected a topology with a network between hosts for {} ranks, found {} ({} GPUs)",
        *study.world, topology.name, topology.gpus_per_node));
  }
  if (study.hashed && !(study.hashed->elements >= 1 && study.hashed->chunk >= 1)) {
    return decline(fmt::format(
        "hashed array: expected at least one element and column per chunk, found {} and {}",
        study.hashed->elements, study.hashed->chunk));
  }
  // Factors and spreads were fitted to HugeCTR's systems; a step of PyTorch has the price of its
  // graph.
  if (!options.step) model.calibration_ = calibration_of(gpu, options.software);
  if (options.device_factor > 0) model.calibration_.factor = options.device_factor;
  PERFMODEL_TRY_TO(check_dot_products(study));
  std::int64_t vectors = 0, columns = 0;
  std::size_t features = 0;
  std::map<std::string, std::uint32_t> keys;
  for (const ShardedTable& table : study.tables) {
    PERFMODEL_TRY_TO(check_table(table, *study.world));
    features += table.features.size();
    for (const TableFeature& feature : table.features) {
      const auto bags = static_cast<std::int64_t>(std::llround(feature.poolings));
      vectors += bags;
      columns += bags * table.dim;
    }
    const auto [found, is_new] =
        keys.try_emplace(key_of(table), static_cast<std::uint32_t>(keys.size()));
    model.like_.push_back(found->second);
  }
  if (study.dense) {
    const TableOptimizer optimizer = usual_optimizer(study.tables);
    // HugeCTR fuses layers, PyTorch does not.
    const bool fused = options.software == TableSoftware::kFused && !options.step;
    PERFMODEL_TRY(dense, dense_time(*study.dense, *study.batch_per_rank, vectors, columns,
                                    optimizer, fused, gpu, *options.models));
    model.dense_ = *dense;
    if (options.step && options.step->has_layers) {
      model.dense_.bottom_forward_us = model.dense_.bottom_backward_us = 0;
      model.dense_.top_forward_us = model.dense_.top_backward_us = 0;
    }
    if (options.step) model.dense_.optimizer_us = 0;
  }
  if (*study.world > 1 && !options.step) {
    const double us = interaction_us_per_feature(options.software) * static_cast<double>(features);
    model.dense_.top_forward_us += us / 2;
    model.dense_.top_backward_us += us / 2;
  }
  model.cache_ = std::make_shared<LoadCache>();
  return model;
}

Result<BatchModel> BatchModel::with(const ShardingStudy& study) const {
  return make(study, gpu_, topology_, options_);
}

double BatchModel::memory_cap() const { return gpu_.dram_gb * 1e9; }
double BatchModel::reserve() const {
  constexpr double kFreeShare = 0.15;
  return study_.free_share.value_or(kFreeShare) * memory_cap();
}
double BatchModel::table_memory() const { return memory_cap() - reserve() - dense_.memory_bytes; }

LoadSettings BatchModel::load_settings() const {
  return {.world = world(),
          .batch_per_rank = *study_.batch_per_rank,
          .pipeline = study_.pipeline.value_or(TorchrecSettings::Pipeline::kSparseDist),
          .software = options_.software};
}

ShardLoad BatchModel::load(std::size_t table, const ShardSize& size,
                           const TablePlacement& placement) const {
  const ShardingType type = placement.type;
  const ComputeKernel kernel = placement.kernel;
  const TableSettings chosen = used_settings(placement);
  const LoadCache::Key key{like_[table], type, kernel, size.rows, size.columns, chosen};
  return cache_->once(cache_->loads, key, [&] {
    const ShardedTable of = settled(study_.tables[table], chosen);
    const ShardCut cut{.rows = size.rows,
                       .columns = size.columns,
                       .parts = static_cast<double>(of.rows) / static_cast<double>(size.rows),
                       .everywhere = type == ShardingType::kDataParallel};
    return kernel == ComputeKernel::kHashed
               ? hashed_lookup_load(of, *study_.hashed, load_settings(), gpu_)
               : shard_load(of, cut, kernel, type, load_settings(), gpu_);
  });
}

Result<std::vector<ShardSize>> BatchModel::sizes(std::size_t table,
                                                 const TablePlacement& placement) const {
  return placed_sizes(study_.tables[table], placement, world(), local_world_);
}

Result<ShardLoad> BatchModel::load_on_rank(std::size_t table, const TablePlacement& placement,
                                           std::int64_t rank) const {
  JobLoad job;
  job.ranks.resize(world());
  PERFMODEL_TRY_TO(add(table, placement, job));
  return job.ranks[rank];
}

Result<void> BatchModel::check_kernel(const ShardedTable& table,
                                      const TablePlacement& placement) const {
  const bool replicated =
      placement.kernel == ComputeKernel::kDense || placement.kernel == ComputeKernel::kHashed;
  if (replicated != (placement.type == ShardingType::kDataParallel)) {
    return refuse_table(
        table, "the dense or the hashed kernel for data-parallel tables and for no others",
        fmt::format("{} with {}", to_string(placement.type), to_string(placement.kernel)));
  }
  if (placement.kernel == ComputeKernel::kHashed && !study_.hashed) {
    return refuse_table(table, "a study with a hashed array", "none");
  }
  return {};
}

// The array of hashed tables, which every rank has once.
void BatchModel::add_hashed_array(JobLoad& job) const {
  if (job.hashed_tables <= 0) return;
  const ShardLoad array = hashed_array_load(*study_.hashed, study_.tables.front().optimizer);
  for (ShardLoad& rank : job.ranks) rank += array;
  job.data_parallel_gradients += study_.hashed->elements * study_.hashed->element_bytes;
}

Result<void> BatchModel::add(std::size_t index, const TablePlacement& placement, JobLoad& job,
                             double sign) const {
  const TableSettings settings = used_settings(placement);
  std::optional<ShardedTable> changed;
  if (settings.any()) changed = settled(study_.tables[index], settings);
  const ShardedTable& table = changed ? *changed : study_.tables[index];
  PERFMODEL_TRY_TO(check_kernel(table, placement));
  PERFMODEL_TRY(cut, sizes(index, placement));
  PERFMODEL_TRY(ranks, shard_ranks(table, placement, cut->size(), world(), local_world_));
  ShardLoad shard;
  for (std::size_t i = 0; i < cut->size(); ++i) {
    if ((*cut)[i].rows == 0) continue;
    if (i == 0 || (*cut)[i] != (*cut)[i - 1]) {
      shard = sign * load(index, (*cut)[i], placement);
    }
    job.ranks[(*ranks)[i]] += shard;
  }
  if (placement.type != ShardingType::kDataParallel) {
    if (has_load_at_home(table)) job.at_home += sign * home_load(index, settings);
    job.data_parallel_gradients +=
        sign * static_cast<double>(table.hot_rows * table.dim) * table.element_bytes;
  }
  if (placement.type == ShardingType::kRowWise && table.gives_sums()) {
    const VectorBytes bytes = vector_bytes(table, world(), *study_.batch_per_rank);
    job.summed += sign * bytes.forward;
    job.summed_gradients += sign * bytes.backward;
  } else if (placement.kernel == ComputeKernel::kHashed) {
    job.hashed_tables += sign;
  } else if (placement.type == ShardingType::kDataParallel) {
    job.data_parallel_gradients +=
        sign * static_cast<double>(table.rows * table.dim) * table.element_bytes;
  }
  return {};
}

ShardLoad BatchModel::home_load(std::size_t index, const TableSettings& settings) const {
  return cache_->once(cache_->at_home, std::pair{like_[index], settings}, [&] {
    return load_at_home(settled(study_.tables[index], settings), load_settings(), gpu_);
  });
}

// Inside each host by the place that a vector goes to, then between ranks of equal place. The ranks
// of a host share its traffic to other hosts.
Result<double> BatchModel::hierarchical_us(const JobLoad& job, Load of_rank) const {
  const auto local = static_cast<std::size_t>(local_world_);
  double most_of_rank = 0, most_of_host = 0;
  for (std::size_t first = 0; first < job.ranks.size(); first += local) {
    double host = 0;
    for (std::size_t r = first; r < first + local; ++r) {
      most_of_rank = std::max(most_of_rank, job.ranks[r][of_rank]);
      host += job.ranks[r][of_rank];
    }
    most_of_host = std::max(most_of_host, host);
  }
  const auto inside =
      microseconds(collective_time(topology_, {.kind = CollectiveKind::kAllToAll,
                                               .bytes = {most_of_rank},
                                               .ranks = static_cast<int>(local_world_)}));
  if (!inside) return inside;
  PERFMODEL_TRY(between, between_hosts_us(most_of_host / static_cast<double>(local_world_)));
  return *inside + *between;
}

// An exchange waits for its slowest message and its last rank.
double BatchModel::late_us(double bytes) const {
  if (bytes <= 0 || world() <= 1) return 0;
  const auto ranks = static_cast<double>(world());
  return study_.network.peer_us * (ranks - 1) +
         study_.network.straggler_us * std::sqrt(2 * std::log(ranks));
}

// An all-to-all in which a rank has `of_rank` bytes for all ranks, itself included.
Result<double> BatchModel::all_to_all_us(const JobLoad& job, Load of_rank, bool reversed) const {
  double all = 0, most = 0;
  for (const ShardLoad& rank : job.ranks) {
    const double bytes = options_.step ? sent_by_torchrec(rank, of_rank) : rank[of_rank];
    all += bytes;
    most = std::max(most, bytes);
  }
  if (world() <= 1 || all <= 0) return 0;
  const auto ranks = static_cast<double>(world());
  // As the graphs of ranks are priced: each by its own bytes, and the slowest decides.
  if (options_.step) return collective_us(CollectiveKind::kAllToAll, std::max(most, all / ranks));
  std::vector<Bytes> out, in;
  for (const ShardLoad& rank : job.ranks) {
    out.push_back({rank[of_rank] * (ranks - 1) / ranks});
    in.push_back({std::max(0.0, all - rank[of_rank]) / ranks});
  }
  if (reversed) std::swap(out, in);
  auto us = microseconds(all_to_all_v_time(topology_, static_cast<int>(nodes()), out, in));
  if (us && study_.network.hierarchical && nodes() > 1 && local_world_ > 1) {
    PERFMODEL_TRY(two_steps, hierarchical_us(job, of_rank));
    *us = std::min(*us, *two_steps);
  }
  if (us && of_rank != Load::kIdBytes) {
    *us += exchange_copy_us_per_byte(options_.software) * most;
  }
  return us;
}

Result<double> BatchModel::collective_us(CollectiveKind kind, double bytes) const {
  if (world() <= 1 || bytes <= 0) return 0;
  auto us = microseconds(collective_time(topology_, {.kind = kind,
                                                     .bytes = {bytes},
                                                     .ranks = static_cast<int>(world()),
                                                     .nodes = static_cast<int>(nodes())}));
  if (us && kind == CollectiveKind::kAllReduce && study_.network.one_shot && nodes() == 1) {
    *us = std::min(*us, one_shot_us(bytes));
  }
  return us;
}

// One kernel that waits for flags of the other ranks and reads all that they have.
double BatchModel::one_shot_us(double bytes) const {
  constexpr double kLaunchAndFlags = 8;  // a launch plus two writes and reads over the link
  return kLaunchAndFlags + static_cast<double>(world() - 1) * bytes /
                               (topology_.intra.all_to_all_bandwidth.value * 1e-6);
}

// An all-to-all among the ranks of equal place on all hosts; all places at once share the NICs.
Result<double> BatchModel::between_hosts_us(double bytes) const {
  Topology shared = topology_;
  const double sharing =
      static_cast<double>(local_world_) / std::max(1, topology_.nic ? topology_.nic->count : 1);
  if (shared.nic) shared.nic->bandwidth.value /= std::max(1.0, sharing);
  return microseconds(collective_time(shared, {.kind = CollectiveKind::kAllToAll,
                                               .bytes = {bytes},
                                               .ranks = static_cast<int>(nodes()),
                                               .nodes = static_cast<int>(nodes())}));
}

// Partial sums of tables that are cut on a host: reduced (or gathered) there, exchanged between
// ranks of equal place on all hosts. The host with most bytes is waited for.
Result<double> BatchModel::host_sum_us(const JobLoad& job, Load of_rank, bool forward) const {
  double most = 0;
  for (const ShardLoad& rank : job.ranks) most = std::max(most, rank[of_rank]);
  if (most <= 0) return 0;
  double us = 0;
  if (local_world_ > 1) {
    const auto kind = forward ? CollectiveKind::kReduceScatter : CollectiveKind::kAllGather;
    const auto inside = microseconds(collective_time(
        topology_, {.kind = kind, .bytes = {most}, .ranks = static_cast<int>(local_world_)}));
    if (!inside) return inside;
    us += *inside;
  }
  if (nodes() > 1) {
    PERFMODEL_TRY(between, between_hosts_us(most / static_cast<double>(local_world_)));
    us += *between;
  }
  return us;
}

Result<PartTimes> BatchModel::exchanges(const JobLoad& job) const {
  using enum BatchPart;
  PartTimes all;
  const auto add = [](double& sum, const Result<double>& us) -> Result<void> {
    if (!us) return Unexpected{us.error()};
    sum += *us;
    return {};
  };
  Result<void> good = add(all[kIdExchange], all_to_all_us(job, Load::kIdBytes, true));
  if (good) good = add(all[kVectorExchange], all_to_all_us(job, Load::kVectorBytes, false));
  if (good)
    good = add(all[kVectorExchange], collective_us(CollectiveKind::kReduceScatter, job.summed));
  if (good) good = add(all[kVectorExchange], host_sum_us(job, Load::kHostSumBytes, true));
  if (good) good = add(all[kGradientExchange], all_to_all_us(job, Load::kGradientBytes, true));
  if (good) {
    good = add(all[kGradientExchange],
               collective_us(CollectiveKind::kAllGather, job.summed_gradients));
  }
  if (good)
    good = add(all[kGradientExchange], host_sum_us(job, Load::kHostSumGradientBytes, false));
  // PyTorch reduces gradients of copied tables by themselves, and gradients of layers in buckets,
  // of which only the last one comes after the backward pass.
  const auto reduce = [&](double& sum, double bytes) {
    if (good) good = add(sum, collective_us(CollectiveKind::kAllReduce, bytes));
  };
  if (options_.step) {
    reduce(all[kFirstReduce], dense_.gradient_bytes - dense_.last_bucket_bytes);
    reduce(all[kTableReduce], job.data_parallel_gradients);
    reduce(all[kAllReduce], dense_.last_bucket_bytes);
  } else {
    reduce(all[kAllReduce], dense_.gradient_bytes + job.data_parallel_gradients);
  }
  if (!good) return Unexpected{good.error()};
  for (const BatchPart part :
       {kIdExchange, kVectorExchange, kGradientExchange, kAllReduce, kFirstReduce, kTableReduce}) {
    all[part] += late_us(all[part]);
  }
  return all;
}

RankMemory BatchModel::memory(const ShardLoad& load) const {
  return {.weights = load[Load::kWeightBytes],
          .optimizer = load[Load::kOptimizerBytes],
          .cache = load[Load::kCacheBytes],
          .buffers = load[Load::kBufferBytes],
          .dense = dense_.memory_bytes,
          .reserve = reserve()};
}

Result<BatchTime> BatchModel::time(std::span<const TablePlacement> placements) const {
  PERFMODEL_TRY_TO(check_placements(study_.tables, placements));
  JobLoad job;
  job.ranks.resize(world());
  for (std::size_t i = 0; i < placements.size(); ++i) PERFMODEL_TRY_TO(add(i, placements[i], job));
  add_hashed_array(job);
  for (ShardLoad& rank : job.ranks) rank += job.at_home;
  BatchTime batch;
  batch.ranks.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    BatchRank& rank = batch.ranks[r];
    rank.load = job.ranks[r];
    rank.memory = memory(rank.load);
    rank.host_bytes = rank.load[Load::kHostBytes];
    if (rank.memory.total() > memory_cap()) {
      batch.ranks_over_memory.push_back(static_cast<std::int32_t>(r));
    }
    set_lookups(rank.load, rank.parts);
  }
  PERFMODEL_TRY_TO(set_exchanges(job, batch));
  const std::vector<double> others_us = other_launches_us(batch, placements);
  batch.step = step_work(options_.step, placements);
  if (batch.step) {
    batch.host_us = batch.step->host_us();
    move_to_ranks(batch);
  }
  batch.host_us = std::max(batch.host_us, options_.host_us);
  schedule_batch(batch, order());
  finish(batch);
  for (const double us : others_us) {
    batch.low_us = std::min(batch.low_us, us);
    batch.high_us = std::max(batch.high_us, us);
  }
  return batch;
}

void BatchModel::set_lookups(const ShardLoad& load, PartTimes& parts) const {
  const LookupTime lookup = lookup_time(load, options_.software, gpu_, *options_.models);
  parts[BatchPart::kPrefetch] = lookup.prefetch_us;
  parts[BatchPart::kLookupForward] = lookup.forward_us;
  parts[BatchPart::kLookupBackward] = lookup.backward_us;
}

Result<void> BatchModel::set_exchanges(const JobLoad& job, BatchTime& batch) const {
  PERFMODEL_TRY(network, exchanges(job));
  using enum BatchPart;
  for (BatchRank& rank : batch.ranks) {
    for (const BatchPart part : {kIdExchange, kVectorExchange, kGradientExchange, kAllReduce,
                                 kFirstReduce, kTableReduce}) {
      rank.parts[part] = (*network)[part];
    }
    rank.parts[kBottomForward] = dense_.bottom_forward_us;
    rank.parts[kTopForward] = dense_.top_forward_us;
    rank.parts[kTopBackward] = dense_.top_backward_us;
    rank.parts[kBottomBackward] = dense_.bottom_backward_us;
    rank.parts[kDenseOptimizer] = dense_.optimizer_us;
  }
  return {};
}

BatchOrder BatchModel::order() const {
  return {.pipelined = is_pipelined(), .reduces_beside = study_.network.reduces_beside};
}

bool BatchModel::is_pipelined() const {
  return study_.pipeline.value_or(TorchrecSettings::Pipeline::kSparseDist) !=
         TorchrecSettings::Pipeline::kNone;
}

std::optional<BatchWork> BatchModel::step_work(const std::optional<StepNeeds>& needs,
                                               std::span<const TablePlacement> placements) const {
  if (!needs) return std::nullopt;
  BatchWork work = needs->of(placements);
  if (options_.host_us > 0) work.drop_host();
  return work;
}

std::vector<double> BatchModel::other_launches_us(
    const BatchTime& batch, std::span<const TablePlacement> placements) const {
  std::vector<double> times;
  BatchTime other = batch;
  for (const StepNeeds& needs : options_.other_steps) {
    other.step = step_work(needs, placements);
    times.push_back(clock_us(batch_makespan_us(other, order())));
  }
  return times;
}

double BatchModel::clock_us(double device_us) const {
  return std::max(options_.host_us, device_us * calibration_.factor);
}

// From device time to the time on a clock. Other ways to launch widen the range of a step of
// PyTorch.
void BatchModel::finish(BatchTime& batch) const {
  constexpr double kUnknownSpread = 0.45;  // without a measured system of that GPU
  const double spread = calibration_.known ? calibration_.spread : kUnknownSpread;
  batch.predicted_us = clock_us(batch.predicted_us);
  batch.low_us = batch.predicted_us / (1 + spread);
  batch.high_us = batch.predicted_us * (1 + spread);
}

Result<double> BatchModel::time_without(const BatchTime& batch, BatchPart part) const {
  BatchTime without = batch;
  if (part == BatchPart::kHost && without.step) without.step->drop_host();
  for (BatchRank& rank : without.ranks) rank.parts[part] = 0;
  schedule_batch(without, order());
  finish(without);
  return without.predicted_us;
}

}  // namespace perfmodel::sharding
