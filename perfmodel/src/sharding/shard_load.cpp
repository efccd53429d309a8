#include "perfmodel/sharding/detail/shard_load.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optimizer_state.hpp"
#include "price/index_skew.hpp"
#include "price/kernel_work.hpp"
#include "price/kernels/embedding_rates.hpp"

namespace perfmodel::sharding {
namespace {

constexpr double kIdBytes = 8, kWeightOfIdBytes = 4;

ZipfLaw law_of(const ShardedTable& table) {
  return {.rows = static_cast<double>(table.rows),
          .exponent = table.skew.exponent,
          .shift = table.skew.shift};
}

// Share of lookups that find one of the copies on every rank.
double hot_share(const ShardedTable& table) {
  if (table.hot_rows <= 0) return 0;
  return IndexSkew(law_of(table))
      .top_mass(static_cast<double>(std::min(table.hot_rows, table.rows)));
}

// The law of the rows that are not hot: the same one, begun later.
ZipfLaw cold_law(const ShardedTable& table) {
  ZipfLaw law = law_of(table);
  const double hot = static_cast<double>(std::min(table.hot_rows, table.rows - 1));
  law.rows -= hot;
  if (law.exponent > 0) law.shift += hot;
  return law;
}

// Share of ids on the busiest of `parts` ranks if a hash spreads the rows. Each distinct id is one
// row: the most frequent one weighs no more than any other.
double share_of_ids(const ShardedTable& table, double parts) {
  if (parts <= 1) return 1;
  if (table.deduplicated) return 1 / parts;
  const ZipfLaw law = cold_law(table);
  const double first = law.exponent == 0 ? 1 / law.rows : IndexSkew(law).top_mass(1);
  return first + (1 - first) / parts;
}

// Written in one type and read in the other; nothing if both are the same.
double cast_bytes(int own, int wire) { return own == wire ? 0.0 : own + wire; }

class Loads {
 public:
  Loads(const ShardedTable& table, const ShardCut& cut, ComputeKernel kernel, ShardingType type,
        const LoadSettings& settings, const Gpu& gpu)
      : table_(table), cut_(cut), kernel_(kernel), type_(type), settings_(settings), gpu_(gpu) {
    const double senders = cut.everywhere ? 1 : static_cast<double>(settings.world);
    for (const TableFeature& feature : table.features) {
      const double samples = cut.everywhere
                                 ? feature.most_samples(settings.batch_per_rank)
                                 : feature.samples_of_job(settings.batch_per_rank, settings.world);
      bags_ += samples * feature.poolings;
      ids_ += samples * feature.poolings * feature.pooling_factor;
    }
    if (!cut.everywhere) ids_ *= 1 - hot_share(table);
    if (table.deduplicated && !cut.everywhere) {
      // Batches may differ by rank; all count as the largest.
      ids_ = bags_ = distinct_ids(table, settings.batch_per_rank) * senders;
    }
    const double share = share_of_ids(table, cut.parts);
    ids_ *= share;
    if (!table.gives_sums() && !cut.everywhere) bags_ = ids_;  // a vector per id
    vectors_ = table.pooled && (table.gives_sums() || cut.everywhere) ? bags_ : ids_;
    row_bytes_ = static_cast<double>(cut.columns) * table.element_bytes;
    shape_ = {
        .batch = static_cast<std::int64_t>(std::max(1.0, std::round(bags_))),
        .num_tables = 1,
        .num_rows = static_cast<double>(cut.rows),
        .dim = static_cast<double>(cut.columns),
        .pooling_factor = ids_ / bags_,
        .weight_bytes = table.element_bytes,
        .output_bytes = output_bytes(),
        .optimizer_bytes_per_row =
            2 * kStateBytes * state_numbers(table.optimizer, static_cast<double>(cut.columns)),
        .zipf_exponent = table.skew.exponent,
        .zipf_shift = cut.everywhere ? table.skew.shift : cold_law(table).shift};
  }

  ShardLoad run() {
    forward();
    backward();
    exchange();
    memory();
    return load_;
  }

 private:
  int output_bytes() const { return table_.output_bytes.value_or(table_.element_bytes); }
  bool is_uvm() const { return kernel_ == ComputeKernel::kFusedUvm; }
  bool is_cached() const { return kernel_ == ComputeKernel::kFusedUvmCaching; }

  void forward() {
    const EmbeddingTraffic traffic =
        embedding_forward_traffic(shape_, embedding_rates(shape_, gpu_));
    const double rows_over_link = is_uvm() ? traffic.missed_row_bytes : 0;
    load_[Load::kForwardL2Bytes] = traffic.l2_bytes;
    load_[Load::kForwardDramBytes] =
        is_uvm() ? traffic.dram_bytes - rows_over_link : traffic.dram_cost_bytes;
    load_[Load::kForwardBags] = bags_;
    load_[Load::kForwardIds] = ids_;
    load_[Load::kFeatures] = static_cast<double>(table_.features.size());
    load_[Load::kForwardLinkBytes] = rows_over_link;
    if (is_cached()) {
      // A row that is dropped has been updated and goes back.
      const double moved = 2 * cache_misses() * row_bytes_;
      const bool prefetches = settings_.pipeline == TorchrecSettings::Pipeline::kPrefetchSparseDist;
      load_[prefetches ? Load::kPrefetchLinkBytes : Load::kForwardLinkBytes] += moved;
    }
  }

  double cache_misses() const {
    const IndexSkew skew(ZipfLaw{.rows = static_cast<double>(cut_.rows),
                                 .exponent = table_.skew.exponent,
                                 .shift = table_.skew.shift});
    const double slots = table_.cache.load_factor * static_cast<double>(cut_.rows);
    const double missed = ids_ * (1 - skew.lru(slots).hit_rate);
    return std::min(missed, skew.unique_rows(ids_));
  }

  void backward() {
    const EmbeddingBackwardTraffic traffic = embedding_backward_traffic(shape_);
    load_[Load::kBackwardL2Bytes] = traffic.cost_factor * traffic.l2_bytes;
    load_[Load::kBackwardDramBytes] = traffic.cost_factor * traffic.dram_bytes;
    load_[Load::kSortedIds] = ids_;
    load_[Load::kSortedRows] = static_cast<double>(cut_.rows);
    if (is_uvm()) {
      load_[Load::kBackwardLinkBytes] =
          traffic.touched_rows * (2 * row_bytes_ + shape_.optimizer_bytes_per_row);
      load_[Load::kBackwardDramBytes] =
          traffic.cost_factor * (traffic.dram_bytes - load_[Load::kBackwardLinkBytes]);
    }
    if (cut_.everywhere) {
      // A dense gradient is cleared, filled, reduced and applied by an optimizer that reads and
      // writes rows and state.
      const double rows = static_cast<double>(cut_.rows);
      const double state =
          2 * kStateBytes * state_numbers(table_.optimizer, static_cast<double>(cut_.columns));
      load_[Load::kBackwardDramBytes] += rows * (4 * row_bytes_ + state);
    }
  }

  void exchange() {
    if (cut_.everywhere) return;
    const double id = kIdBytes + (table_.weighted ? kWeightOfIdBytes : 0);
    load_[Load::kIdBytes] = ids_ * id + bags_ * 4;  // and the lengths of the bags
    const double columns = static_cast<double>(cut_.columns);
    const int own = output_bytes(), forward_wire = table_.forward_wire_bytes.value_or(own);
    const int backward_wire = table_.backward_wire_bytes.value_or(own);
    const double forward = vectors_ * columns * forward_wire;
    const double backward = vectors_ * columns * backward_wire;
    load_[Load::kForwardDramBytes] += vectors_ * columns * cast_bytes(own, forward_wire);
    load_[Load::kBackwardDramBytes] += vectors_ * columns * cast_bytes(own, backward_wire);
    const bool sums = table_.gives_sums();
    if (type_ == ShardingType::kRowWise && sums)
      return;  // the same on all ranks: counted for the job
    const bool on_host =
        sums && (type_ == ShardingType::kTableRowWise || type_ == ShardingType::kGrid ||
                 type_ == ShardingType::kHostRowSplit);
    load_[on_host ? Load::kHostSumBytes : Load::kVectorBytes] = forward;
    load_[on_host ? Load::kHostSumGradientBytes : Load::kGradientBytes] = backward;
  }

  void memory() {
    const double rows = static_cast<double>(cut_.rows);
    const double weights = rows * row_bytes_;
    const double state =
        rows * kStateBytes * state_numbers(table_.optimizer, static_cast<double>(cut_.columns));
    if (is_uvm() || is_cached()) {
      load_[Load::kHostBytes] = weights + state;
    } else {
      load_[Load::kWeightBytes] = weights + (cut_.everywhere ? weights : 0);  // and its gradient
      load_[Load::kOptimizerBytes] = state;
    }
    if (is_cached()) {
      // Slots and their map: 4 bytes per row, 16 to 20 per slot (FBGEMM).
      constexpr double kMapBytesPerRow = 4, kBytesPerSlot = 20;
      const double slots = rows * table_.cache.load_factor;
      load_[Load::kCacheBytes] = slots * (row_bytes_ + kBytesPerSlot) + rows * kMapBytesPerRow;
    }
    const double vectors = vectors_ * static_cast<double>(cut_.columns) * output_bytes();
    const double batches = 1 + static_cast<int>(settings_.pipeline);  // in flight
    load_[Load::kBufferBytes] = batches * ids_ * kIdBytes + 2 * vectors;
  }

  const ShardedTable& table_;
  const ShardCut& cut_;
  const ComputeKernel kernel_;
  const ShardingType type_;
  const LoadSettings& settings_;
  const Gpu& gpu_;
  double bags_ = 0, ids_ = 0, vectors_ = 0, row_bytes_ = 0;
  EmbeddingShape shape_;
  ShardLoad load_;
};

double price_us(const KernelModels& models, const Gpu& gpu, KernelFamily family, double read,
                double written) {
  const KernelWork work{.family = family,
                        .dtype = DType::kInt64,
                        .flop = {},
                        .bytes_read = {read},
                        .bytes_written = {written},
                        .shape = {}};
  return models.price(work, gpu).time.count();
}

// Software that takes tables one by one. Fitted to the even rows of published iteration times of
// NVIDIA's synthetic recommenders on A100 (docs/sharding.md): per lookup and its update, most of it
// host work and waiting for the number of distinct rows.
constexpr double kFeatureForwardUs = 106, kFeatureBackwardUs = 212;

// Keys made unique over tables, sorted with their positions, run-length encoded: FBGEMM's chain.
double sort_us(double ids, double rows, const KernelModels& models, const Gpu& gpu) {
  constexpr int kBitsPerPass = 8, kSmallKernels = 4;
  constexpr double kKeyBytes = 8, kPositionBytes = 4;
  const auto bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max(1.0, rows))));
  const int passes = (bits + kBitsPerPass - 1) / kBitsPerPass;
  const double keys = ids * kKeyBytes, pairs = ids * (kKeyBytes + kPositionBytes);
  return price_us(models, gpu, KernelFamily::kIndex, keys, 2 * keys) +
         price_us(models, gpu, KernelFamily::kSort, keys, 0) +
         passes * price_us(models, gpu, KernelFamily::kSort, pairs, pairs) +
         price_us(models, gpu, KernelFamily::kSort, keys, keys) +
         kSmallKernels * price_us(models, gpu, KernelFamily::kSmall, 0, 0);
}

// Distinct rows are found twice, for the sum of gradients and by the optimizer, by sorting all 64
// bits of an id.
double distinct_rows_us(double ids, const KernelModels& models, const Gpu& gpu) {
  constexpr int kSorts = 2, kPasses = 8;
  constexpr double kPairBytes = 12;
  return kSorts * kPasses *
         price_us(models, gpu, KernelFamily::kSort, ids * kPairBytes, ids * kPairBytes);
}

}  // namespace

ShardLoad shard_load(const ShardedTable& table, const ShardCut& cut, ComputeKernel kernel,
                     ShardingType type, const LoadSettings& settings, const Gpu& gpu) {
  return Loads(table, cut, kernel, type, settings, gpu).run();
}

double distinct_ids(const ShardedTable& table, std::int64_t batch_per_rank) {
  double ids = 0;
  for (const TableFeature& feature : table.features) {
    ids += feature.most_samples(batch_per_rank) * feature.poolings * feature.pooling_factor;
  }
  if (table.hot_rows <= 0) return IndexSkew(law_of(table)).unique_rows(ids);
  return IndexSkew(cold_law(table)).unique_rows(ids * (1 - hot_share(table)));
}

ShardLoad hot_rows_load(const ShardedTable& table, const LoadSettings& settings, const Gpu& gpu) {
  ShardedTable hot = table;
  hot.rows = std::min(table.hot_rows, table.rows);
  hot.hot_rows = 0;
  hot.deduplicated = false;
  for (TableFeature& feature : hot.features) feature.pooling_factor *= hot_share(table);
  return shard_load(hot, {.rows = hot.rows, .columns = hot.dim, .parts = 1, .everywhere = true},
                    ComputeKernel::kDense, ShardingType::kDataParallel, settings, gpu);
}

ShardLoad deduplication_load(const ShardedTable& table, const LoadSettings& settings) {
  constexpr double kPlaceBytes = 16;
  double ids = 0, bags = 0;
  for (const TableFeature& feature : table.features) {
    const double samples = feature.most_samples(settings.batch_per_rank);
    bags += samples * feature.poolings;
    ids += samples * feature.poolings * feature.pooling_factor;
  }
  const double item = table.output_bytes.value_or(table.element_bytes);
  const double vector = static_cast<double>(table.dim) * item;
  const double distinct = distinct_ids(table, settings.batch_per_rank);
  const double results = (table.pooled ? bags : ids) * vector;
  ShardLoad load;
  load[Load::kForwardBags] = table.pooled ? bags : ids;
  load[Load::kForwardIds] = ids;
  load[Load::kForwardL2Bytes] = ids * (vector + kPlaceBytes) + results;
  load[Load::kForwardDramBytes] = distinct * vector + ids * kPlaceBytes + results;
  load[Load::kSortedIds] = ids;
  load[Load::kBackwardL2Bytes] = ids * (vector + kPlaceBytes) + distinct * vector;
  load[Load::kBackwardDramBytes] = results + ids * kPlaceBytes + distinct * vector;
  load[Load::kBufferBytes] = ids * kPlaceBytes + 2 * distinct * vector;
  return load;
}

bool has_load_at_home(const ShardedTable& table) {
  const int own = table.output_bytes.value_or(table.element_bytes);
  return table.deduplicated || table.hot_rows > 0 ||
         table.forward_wire_bytes.value_or(own) != own ||
         table.backward_wire_bytes.value_or(own) != own;
}

ShardLoad load_at_home(const ShardedTable& table, const LoadSettings& settings, const Gpu& gpu) {
  ShardLoad load;
  if (table.deduplicated) load += deduplication_load(table, settings);
  if (table.hot_rows > 0) load += hot_rows_load(table, settings, gpu);
  double vectors = 0;
  if (table.deduplicated) {
    vectors = distinct_ids(table, settings.batch_per_rank);
  } else {
    for (const TableFeature& feature : table.features) {
      const double samples = feature.most_samples(settings.batch_per_rank);
      vectors += samples * feature.poolings * (table.pooled ? 1 : feature.pooling_factor);
    }
  }
  const int own = table.output_bytes.value_or(table.element_bytes);
  const double elements = vectors * static_cast<double>(table.dim);
  load[Load::kForwardDramBytes] +=
      elements * cast_bytes(own, table.forward_wire_bytes.value_or(own));
  load[Load::kBackwardDramBytes] +=
      elements * cast_bytes(own, table.backward_wire_bytes.value_or(own));
  return load;
}

VectorBytes vector_bytes(const ShardedTable& table, std::int64_t world, std::int64_t batch) {
  double vectors = 0;
  for (const TableFeature& feature : table.features) {
    const double samples = feature.samples_of_job(batch, world);
    vectors += samples * feature.poolings * (table.pooled ? 1 : feature.pooling_factor);
  }
  const double elements = vectors * static_cast<double>(table.dim);
  const int output = table.output_bytes.value_or(table.element_bytes);
  return {elements * table.forward_wire_bytes.value_or(output),
          elements * table.backward_wire_bytes.value_or(output)};
}

double exchange_copy_us_per_byte(TableSoftware software) {
  return software == TableSoftware::kPerTable ? 21.3e-6 : 0;
}

double interaction_us_per_feature(TableSoftware software) {
  return software == TableSoftware::kPerTable ? 9.5 : 0;
}

double row_link_bytes_per_us(const Gpu& gpu) {
  // FBGEMM's cache exchanges rows at 13.5 to 16.4 GB/s, half of PCIe 4's nominal rate.
  constexpr double kShare = 0.5;
  return kShare * gpu.pcie_bandwidth.value * 1e-6;
}

LookupTime lookup_time(const ShardLoad& sum, TableSoftware software, const Gpu& gpu,
                       const KernelModels& models) {
  LookupTime time;
  const double bags = sum[Load::kForwardBags], ids = sum[Load::kForwardIds];
  if (bags <= 0) return time;
  const EmbeddingRates rates = embedding_rates(
      {.batch = static_cast<std::int64_t>(std::max(1.0, bags)), .pooling_factor = ids / bags}, gpu);
  const double link = row_link_bytes_per_us(gpu);
  const double l2 = sum[Load::kForwardL2Bytes] / rates.l2_bytes_per_us;
  const double dram = sum[Load::kForwardDramBytes] / rates.dram_bytes_per_us;
  const double launches = software == TableSoftware::kFused ? 1 : sum[Load::kFeatures];
  time.forward_us = launches * rates.fixed_us + std::hypot(rates.stall_us, l2, dram) +
                    sum[Load::kForwardLinkBytes] / link;
  time.backward_us = sort_us(sum[Load::kSortedIds], sum[Load::kSortedRows], models, gpu) +
                     launches * rates.fixed_us +
                     std::max(sum[Load::kBackwardDramBytes] / rates.dram_bytes_per_us,
                              sum[Load::kBackwardL2Bytes] / rates.l2_bytes_per_us) +
                     sum[Load::kBackwardLinkBytes] / link;
  if (software == TableSoftware::kPerTable) {
    time.forward_us += sum[Load::kFeatures] * kFeatureForwardUs;
    time.backward_us += sum[Load::kFeatures] * kFeatureBackwardUs +
                        distinct_rows_us(sum[Load::kSortedIds], models, gpu);
  }
  time.prefetch_us = sum[Load::kPrefetchLinkBytes] / link;
  return time;
}

}  // namespace perfmodel::sharding
