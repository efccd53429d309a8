#include "perfmodel/sharding/detail/torchrec_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "optimizer_state.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

constexpr double kTorchrecIdBytes = 8;
constexpr double kLeastColumnsRead = 32;      // narrower rows are read as if they were that wide
constexpr double kBatchedCopyFactor = 2.455;  // gradients of rows from all ranks
constexpr double kDenseUpdateFactor = 9.22;   // element-wise work on a dense gradient
constexpr double kDenseShareOfHbm = 0.5;
constexpr double kUvmDivisor = 10;
constexpr double kWeightGradientFactor = 1.1;
constexpr double kCacheBytesPerRow = 4, kCacheBytesPerSlot = 16;

std::int64_t up(double value) { return static_cast<std::int64_t>(std::ceil(value)); }

bool holds_whole_rows_once(ShardingType type) {  // one rank looks up all ids that it gets
  return type == ShardingType::kTableWise || type == ShardingType::kColumnWise ||
         type == ShardingType::kTableColumnWise;
}
bool is_cut_on_a_host(ShardingType type) {
  return type == ShardingType::kTableRowWise || type == ShardingType::kGrid;
}

// Symbols as in the planner: W ranks, L per host, I ids and O vectors per rank and batch.
class Estimate {
 public:
  Estimate(const ShardedTable& table, ShardingType type, ComputeKernel kernel,
           const TorchrecTopology& topology, const TorchrecSettings& settings)
      : table_(table),
        type_(type),
        kernel_(kernel),
        topology_(topology),
        settings_(settings),
        ranks_(static_cast<double>(topology.world)),
        local_ranks_(static_cast<double>(topology.local_world)) {
    for (const TableFeature& feature : table.features) {
      const auto batch = static_cast<double>(feature.batch.value_or(settings.batch));
      ids_ += feature.pooling_factor * feature.poolings * batch;
      vectors_ += feature.poolings * batch;
    }
    if (!table.pooled) vectors_ = ids_;
    ids_here_ = type == ShardingType::kRowWise ? ids_ / ranks_
                : is_cut_on_a_host(type)       ? ids_ / local_ranks_
                                               : ids_;
    const bool by_rows = type == ShardingType::kRowWise || is_cut_on_a_host(type);
    vectors_here_ = by_rows && !table.pooled ? ids_here_ : vectors_;
    bandwidth_ = bandwidth();
  }

  TorchrecShardCost of(ShardSize size) const {
    TorchrecShardCost cost;
    cost.size = size;
    perf(cost);  // also for ranks without rows: upstream only asks for columns
    storage(cost);
    return cost;
  }

 private:
  double bytes() const { return table_.element_bytes; }
  double forward_wire() const { return table_.forward_wire_bytes.value_or(table_.element_bytes); }
  double backward_wire() const { return table_.backward_wire_bytes.value_or(table_.element_bytes); }
  double link() const { return topology_.host_link_bandwidth; }
  bool is_cached() const { return kernel_ == ComputeKernel::kFusedUvmCaching; }
  bool is_dense() const { return type_ == ShardingType::kDataParallel; }

  double bandwidth() const {
    const double hbm = topology_.hbm_bandwidth, share = table_.cache.load_factor;
    switch (kernel_) {
      case ComputeKernel::kDense: return kDenseShareOfHbm * hbm;
      case ComputeKernel::kFused: return hbm;
      case ComputeKernel::kFusedUvm: return link() / kUvmDivisor;
      case ComputeKernel::kFusedUvmCaching:
        return table_.cache.prefetches ? hbm : (share * hbm + (1 - share) * link()) / kUvmDivisor;
      case ComputeKernel::kHashed: break;  // refused
    }
    return hbm;
  }

  // All-to-all, reduce-scatter and all-gather over all ranks.
  double exchange_bandwidth() const {
    return topology_.world <= topology_.local_world ? topology_.intra_host_bandwidth
                                                    : topology_.inter_host_bandwidth;
  }

  double width_penalty(double columns) const {
    if (!holds_whole_rows_once(type_) || columns >= 128) return 1;
    return columns >= 64 ? 1.15 : 1.75;
  }

  void perf(TorchrecShardCost& cost) const {
    const auto columns = static_cast<double>(cost.size.columns);
    const double arriving = is_dense() ? 1 : ranks_;
    const double inputs = static_cast<double>(up(kTorchrecIdBytes * ids_here_ * arriving)) *
                          (table_.weighted ? 2 : 1);
    const double read =
        holds_whole_rows_once(type_) ? std::max(columns, kLeastColumnsRead) : columns;
    const double lookups = ids_here_ * arriving * read * bytes();
    // Tables cut on a host send their outputs to its ranks first: sequences in the table's type.
    const bool as_in_table = is_dense() || (is_cut_on_a_host(type_) && !table_.pooled);
    const double row = as_in_table ? bytes() : forward_wire();
    const double outputs = vectors_here_ * arriving * columns * row;
    cost.forward_compute_ms = (inputs + lookups + outputs) * width_penalty(columns) / bandwidth_;
    cost.backward_compute_ms = backward_compute(cost.forward_compute_ms);
    comms(cost, columns);
    cost.prefetch_ms = prefetch(columns);
    if (settings_.inference) {
      cost.prefetch_ms = 0;
      // As upstream has it, which forgets these two types.
      if (!is_cut_on_a_host(type_)) cost.backward_compute_ms = cost.backward_comms_ms = 0;
    }
  }

  double backward_compute(double forward) const {
    const double plain = forward * topology_.backward_compute_multiplier;
    if (!table_.weighted) return plain;
    return plain * topology_.weighted_backward_multiplier + kWeightGradientFactor * forward;
  }

  void comms(TorchrecShardCost& cost, double columns) const {
    const double rows_sent = vectors_here_ * ranks_ * columns;
    if (is_dense()) {
      cost.backward_comms_ms = all_reduce(columns);
    } else if (is_cut_on_a_host(type_)) {
      host_comms(cost, columns, rows_sent);
    } else {
      const double forward = rows_sent * forward_wire(), backward = rows_sent * backward_wire();
      cost.forward_comms_ms = forward / exchange_bandwidth();
      cost.backward_comms_ms = backward / exchange_bandwidth();
      if (type_ == ShardingType::kRowWise) {
        cost.backward_comms_ms += kBatchedCopyFactor * backward / bandwidth_;
      }
    }
  }

  // Reduced on the table's host, then exchanged between ranks of equal place on all hosts.
  void host_comms(TorchrecShardCost& cost, double columns, double rows_sent) const {
    const double forward = rows_sent * (table_.pooled ? forward_wire() : bytes());
    const double backward = rows_sent * (table_.pooled ? backward_wire() : bytes());
    cost.forward_comms_ms = forward / topology_.intra_host_bandwidth;
    cost.backward_comms_ms = backward / topology_.intra_host_bandwidth;
    if (topology_.world > topology_.local_world) {
      const double between = vectors_here_ * (ranks_ / local_ranks_) * columns;
      cost.forward_comms_ms += between * forward_wire() / topology_.inter_host_bandwidth;
      cost.backward_comms_ms += between * backward_wire() / topology_.inter_host_bandwidth;
    }
    cost.backward_comms_ms += kBatchedCopyFactor * backward / bandwidth_;
  }

  // Time to reduce the whole table's gradient, touched or not; between hosts as a ring in each and
  // one across.
  double all_reduce(double columns) const {
    const double gradient = static_cast<double>(table_.rows) * columns * bytes();
    const double hosts = std::min(ranks_ / local_ranks_, 2.0);
    double ms =
        gradient * (2 * hosts - 1) / hosts / (topology_.inter_host_bandwidth * local_ranks_);
    if (topology_.world > 2 * topology_.local_world) ms *= 2;
    return ms + gradient * kDenseUpdateFactor / bandwidth_;
  }

  // Share of lookups that find no row in the cache.
  double miss_rate() const {
    const std::vector<double>& counts = table_.cache.statistics->distances;
    double all = 0, near = 0;
    for (double count : counts) all += count;
    if (all == 0) return 0;
    const auto rows = static_cast<double>(table_.rows), bins = static_cast<double>(counts.size());
    const double reach = table_.cache.load_factor * rows - 1;
    std::size_t edges = 0;  // edges of bins, 0 included, that the cache reaches
    while (edges <= counts.size() && static_cast<double>(edges) * rows / bins <= reach) ++edges;
    if (edges == 0) return 1;
    for (std::size_t i = 0; i < std::min(edges, counts.size()); ++i) near += counts[i];
    return 1 - near / all;
  }

  double prefetch(double columns) const {
    if (!is_cached() || !table_.cache.statistics) return 0;
    const double blocks = type_ == ShardingType::kRowWise ? ranks_
                          : is_cut_on_a_host(type_)       ? local_ranks_
                                                          : 1;
    return miss_rate() * table_.cache.statistics->expected_lookups * columns * bytes() / link() /
           blocks;
  }

  // ---- bytes
  // -------------------------------------------------------------------------------------

  double optimizer_multiplier() const {
    const auto columns = static_cast<double>(table_.dim);
    return state_numbers(table_.optimizer, columns) / columns;
  }

  // `bytes` x elements of the shard / elements of the table, which upstream divides as exact
  // integers: their product may have 80 bits.
  double cut(std::int64_t bytes, ShardSize size) const {
    const std::int64_t all = table_.rows * table_.dim, here = size.rows * size.columns;
    const auto rest = static_cast<long double>(bytes % all) * static_cast<long double>(here);
    return static_cast<double>(static_cast<long double>(bytes / all * here) +
                               rest / static_cast<long double>(all));
  }

  // A shard's part of the table's bytes in one memory, with the optimizer's state.
  std::int64_t part(std::int64_t of_table, ShardSize size) const {
    const std::int64_t rows = is_dense() ? of_table : up(cut(of_table, size));
    const std::int64_t state =
        settings_.inference ? 0 : up(static_cast<double>(rows) * optimizer_multiplier());
    return rows + state;
  }

  std::int64_t input_bytes() const {
    return up(kTorchrecIdBytes * ids_here_ * (is_dense() ? 1 : ranks_));
  }
  std::int64_t output_bytes(ShardSize size) const {
    const double element = table_.output_bytes.value_or(table_.element_bytes);
    const bool whole = is_dense() || type_ == ShardingType::kTableWise;
    const auto columns = static_cast<double>(whole ? table_.dim : size.columns);
    return up(vectors_here_ * (is_dense() ? 1 : ranks_) * columns * element);
  }

  std::int64_t buffers(ShardSize size) const {
    using Pipeline = TorchrecSettings::Pipeline;
    if (settings_.inference || size.rows == 0) return 0;
    const std::int64_t inputs = input_bytes(), outputs = output_bytes(size);
    if (settings_.pipeline == Pipeline::kNone) return inputs + outputs;
    constexpr std::int64_t kSparseDistBatches = 2, kPrefetchBatches = 3, kPrefetchCopies = 7;
    std::int64_t all = kSparseDistBatches * inputs;
    if (settings_.pipeline == Pipeline::kPrefetchSparseDist) {
      all = kPrefetchBatches * inputs + (is_cached() ? kPrefetchCopies * inputs : 0);
    }
    return all + (settings_.embeddings_at_peak ? outputs : 0);
  }

  void storage(TorchrecShardCost& cost) const {
    const std::int64_t all = table_.rows * table_.dim * table_.element_bytes;
    const bool on_host = kernel_ == ComputeKernel::kFusedUvm || is_cached();
    const std::int64_t in_hbm =
        is_cached() ? static_cast<std::int64_t>(
                          std::nearbyint(static_cast<double>(all) * table_.cache.load_factor))
        : on_host ? 0
                  : all;
    cost.hbm_bytes = part(in_hbm, cost.size) + buffers(cost.size);
    cost.ddr_bytes = part(on_host ? all : 0, cost.size);
    if (is_cached() && !settings_.inference) {
      cost.hbm_bytes += up(static_cast<double>(cost.size.rows) *
                           (kCacheBytesPerRow + kCacheBytesPerSlot * table_.cache.load_factor));
    }
  }

  const ShardedTable& table_;
  const ShardingType type_;
  const ComputeKernel kernel_;
  const TorchrecTopology& topology_;
  const TorchrecSettings& settings_;
  const double ranks_, local_ranks_;
  double ids_ = 0, vectors_ = 0;            // per rank and batch
  double ids_here_ = 0, vectors_here_ = 0;  // the same for one shard
  double bandwidth_ = 0;
};

bool is_positive(double value) { return value > 0 && std::isfinite(value); }

Result<void> check(const ShardedTable& table, ShardingType type, ComputeKernel kernel,
                   const TorchrecTopology& topology, const TorchrecSettings& settings) {
  const auto refuse = [&](std::string_view expected, auto found) {
    return refuse_table(table, expected, found);
  };
  if (kernel == ComputeKernel::kHashed || type == ShardingType::kRowSplit ||
      type == ShardingType::kHostRowSplit) {
    return refuse("a kernel and a type that TorchRec's planner knows",
                  fmt::format("{} with {}", to_string(type), to_string(kernel)));
  }
  const bool dense = kernel == ComputeKernel::kDense;
  if (dense != (type == ShardingType::kDataParallel)) {
    return refuse("the dense kernel for data-parallel tables and for no others",
                  fmt::format("{} with {}", to_string(type), to_string(kernel)));
  }
  if (table.element_bytes < 1) return refuse("elements of at least a byte", table.element_bytes);
  if (table.rows >
      (std::int64_t{1} << 60) / std::max<std::int64_t>(1, table.dim) / table.element_bytes) {
    return refuse("less than 2^60 bytes", fmt::format("{} x {}", table.rows, table.dim));
  }
  if (table.features.empty()) return refuse("a feature that reads it", "none");
  for (const TableFeature& feature : table.features) {
    if (!is_positive(feature.pooling_factor) || !is_positive(feature.poolings)) {
      return refuse("a pooling factor above 0",
                    fmt::format("{} x {}", feature.pooling_factor, feature.poolings));
    }
    if (feature.batch.value_or(settings.batch) < 1) {
      return refuse("a batch of at least 1", feature.batch.value_or(settings.batch));
    }
  }
  const double share = table.cache.load_factor;
  if (!is_positive(share) || share > 1) return refuse("a load factor above 0, up to 1", share);
  for (double bandwidth : {topology.hbm_bandwidth, topology.host_link_bandwidth,
                           topology.intra_host_bandwidth, topology.inter_host_bandwidth}) {
    if (!is_positive(bandwidth)) return refuse("bandwidths above 0", bandwidth);
  }
  return {};
}

}  // namespace

TorchrecCost& TorchrecCost::operator+=(const TorchrecCost& other) {
  forward_compute_ms += other.forward_compute_ms;
  forward_comms_ms += other.forward_comms_ms;
  backward_compute_ms += other.backward_compute_ms;
  backward_comms_ms += other.backward_comms_ms;
  prefetch_ms += other.prefetch_ms;
  hbm_bytes += other.hbm_bytes;
  ddr_bytes += other.ddr_bytes;
  return *this;
}

Result<std::vector<TorchrecShardCost>> torchrec_costs(const ShardedTable& table, ShardingType type,
                                                      ComputeKernel kernel,
                                                      const TorchrecTopology& topology,
                                                      const TorchrecSettings& settings) {
  PERFMODEL_TRY_TO(check(table, type, kernel, topology, settings));
  PERFMODEL_TRY(sizes, shard_sizes(table, type, topology.world, topology.local_world));
  const Estimate estimate(table, type, kernel, topology, settings);
  std::vector<TorchrecShardCost> costs;
  costs.reserve(sizes->size());
  for (const ShardSize& size : *sizes) {
    const bool same = !costs.empty() && costs.back().size == size;
    costs.push_back(same ? costs.back() : estimate.of(size));
  }
  return costs;
}

}  // namespace perfmodel::sharding
