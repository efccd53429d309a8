#include "embedding_rates.hpp"

#include <algorithm>
#include <cmath>

#include "models.hpp"
#include "price/index_skew.hpp"
#include "price/terms.hpp"

namespace perfmodel {
namespace {

constexpr double kSector = 32;

double round_to_sector(double bytes) { return std::ceil(bytes / kSector) * kSector; }

/// Constants of the reference model (Lin et al., code of 2023).
constexpr double kOccupancy = 0.71;  ///< share of the warps that fit on an SM, measured
constexpr double kWarpsPerSm = 64;   ///< where the data sheet has no number of threads
constexpr double kUsableCache = 0.9;
constexpr double kTableOffsetBytes = 32, kBagOffsetBytes = 64;  ///< per bag and table

constexpr double kRowsInFlight = 16;  ///< per bag; estimate
constexpr double kDependentLoads = 3;

/// Narrow rows keep too few bytes in flight per warp. The reference model has steps (1.55 for D <=
/// 32, 1.1 for D <= 64, else 1) for fp32; here by bytes per row. In the forward model only for rows
/// that come from DRAM: nine measured row widths, the narrow ones with tables that lie in L2, show
/// nothing of it.
double narrow_row_factor(double row_bytes) {
  if (row_bytes <= 128) return 1.55;
  if (row_bytes <= 256) return 1.1;
  return 1;
}

double lookups_per_table(const EmbeddingShape& s) {
  return static_cast<double>(s.batch) * s.pooling_factor;
}

/// The law of a shape's indices; uniform, and false, where the shape has none that makes sense.
struct ShapeLaw {
  ZipfLaw law;
  bool is_valid = true;
};
ShapeLaw law_of(const EmbeddingShape& s) {
  const ZipfLaw law{.rows = s.num_rows, .exponent = s.zipf_exponent, .shift = s.zipf_shift};
  const bool is_uniform = s.zipf_exponent == 0 && s.zipf_shift == 0;
  if (is_uniform ? s.num_rows >= 1 : check_zipf_law(law).has_value()) return {law, true};
  return {{.rows = std::max(1.0, s.num_rows)}, is_uniform};
}

}  // namespace

EmbeddingRates embedding_rates(const EmbeddingShape& shape, const Gpu& gpu) {
  const double warps_per_sm = gpu.max_threads_per_sm > 0 && gpu.warp_size > 0
                                  ? static_cast<double>(gpu.max_threads_per_sm) / gpu.warp_size
                                  : kWarpsPerSm;
  const double in_flight = std::max(1.0, kOccupancy * warps_per_sm * gpu.num_sms);
  const double bags = static_cast<double>(shape.batch) * static_cast<double>(shape.num_tables);
  const double chain =
      terms::kConstants.dram_latency_us * (kDependentLoads + shape.pooling_factor / kRowsInFlight);
  return {.fixed_us = terms::empty_kernel_us(gpu) + chain,
          .stall_us = std::max(0.0, bags / in_flight - 1) * chain,
          .l2_bytes_per_us = terms::l2_bytes_per_us(gpu),
          .dram_bytes_per_us = terms::dram_bytes_per_us(gpu),
          .cache_bytes = terms::cache_bytes(gpu),
          .bags_in_flight = in_flight};
}

EmbeddingTraffic embedding_forward_traffic(const EmbeddingShape& s, const EmbeddingRates& rates) {
  const double batch = static_cast<double>(s.batch), tables = static_cast<double>(s.num_tables);
  const double bags = batch * tables, lookups = lookups_per_table(s);
  const double row = round_to_sector(s.dim * s.weight_bytes);
  EmbeddingTraffic t;
  if (lookups > 1 && row > 0 && s.num_rows >= 1) {
    const double in_flight =
        std::clamp(std::ceil(rates.bags_in_flight / std::max(1.0, batch)), 1.0, tables);
    const double resident = std::floor(kUsableCache * rates.cache_bytes / in_flight / row);
    const ShapeLaw of = law_of(s);
    t.hit_rate = 1 - IndexSkew(of.law).lru_misses(lookups, resident) / lookups;
  }
  const double streams = kTableOffsetBytes + kBagOffsetBytes +
                         round_to_sector(s.pooling_factor * s.index_bytes) +
                         round_to_sector(s.dim * s.output_bytes);
  t.l2_bytes = bags * (streams + s.pooling_factor * row);
  t.missed_row_bytes = bags * (1 - t.hit_rate) * s.pooling_factor * row;
  t.dram_bytes = bags * streams + t.missed_row_bytes;
  const double narrow = narrow_row_factor(s.dim * s.weight_bytes);
  t.dram_cost_bytes = t.dram_bytes + (narrow - 1) * t.missed_row_bytes;
  return t;
}

EmbeddingBackwardTraffic embedding_backward_traffic(const EmbeddingShape& s) {
  constexpr double kReadWriteShare = 0.8, kSortedIndexBytes = 8;
  const double b = static_cast<double>(s.batch), tables = static_cast<double>(s.num_tables);
  const double lookups = lookups_per_table(s);
  const double row = round_to_sector(s.dim * s.weight_bytes);
  const double gradient = round_to_sector(s.dim * s.output_bytes);
  EmbeddingBackwardTraffic t;
  t.touched_rows = IndexSkew(law_of(s).law).unique_rows(lookups);
  t.dram_bytes = tables * (b * gradient + t.touched_rows * (2 * row + s.optimizer_bytes_per_row) +
                           lookups * (s.index_bytes + kSortedIndexBytes));
  t.l2_bytes = tables * lookups * gradient;
  t.cost_factor = narrow_row_factor(s.dim * s.weight_bytes) / kReadWriteShare;
  return t;
}

Price embedding_forward_price(const EmbeddingShape& s, const EmbeddingRates& rates) {
  constexpr double kRelativeRange = 0.3;
  const EmbeddingTraffic t = embedding_forward_traffic(s, rates);
  const double l2 = t.l2_bytes / rates.l2_bytes_per_us;
  const double dram = t.dram_cost_bytes / rates.dram_bytes_per_us;
  const double memory = std::hypot(l2, dram);
  Price price = terms::make_price(0, std::hypot(memory, rates.stall_us), rates.fixed_us,
                                  "embedding-forward-heuristic", kRelativeRange);
  price.memory = Microseconds{memory};
  price.latency = Microseconds{rates.fixed_us + rates.stall_us};
  price.bound = memory > price.latency.count() ? Bound::kMemory : Bound::kLatency;
  price.in_range = s.dim >= 4 && s.dim <= 1024 && s.pooling_factor <= 512 && law_of(s).is_valid;
  return price;
}

namespace kernels {
namespace {

/// Forward: see embedding_rates.hpp. Valid for pooled sums of bags of similar length: the longest
/// bag of a batch sets a floor that a mean does not show. The traffic follows the reference model
/// (L2 version of its authors, geometric mean error 8-10 % on V100 and A100), which takes max(DRAM,
/// L2) and knows no waves; the sum of squares, and all bytes passing through L2, follow nine
/// measured row widths (docs/embedding.md).
///
/// PyTorch's own bags (`is_serial`, ATen's EmbeddingBag.cu: 1,024 blocks of 8 warps) take c = B T
/// ceil(D / 32) pieces of 32 columns, each by a warp that has one row in flight:
///
///   t = t_empty + 1.4 t_dram
///       + max(max(1, c / W) L (0.139 hit + 0.288 (1 - hit)) us,    waits of W warps side by side
///             c (81 + 12.1 L) clocks / (SMs clock),                instructions
///             sqrt((L2 bytes / B_L2)^2 + (DRAM bytes / 0.46 B_DRAM)^2))
///
/// The constants were fitted to 129 calls of PyTorch 2.11 on an H100 (data/measurements, first
/// draw); the second draw, another 33, is 10 % off.
class EmbeddingForward final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    if (const auto* s = std::get_if<EmbeddingShape>(&work.shape)) {
      if (s->is_serial) return serial_price(*s, gpu);
      return embedding_forward_price(*s, embedding_rates(*s, gpu));
    }
    const double latency =
        terms::empty_kernel_us(gpu) + kDependentLoads * terms::kConstants.dram_latency_us;
    Price price = terms::make_price(0, work.bytes().value / terms::dram_bytes_per_us(gpu), latency,
                                    "embedding-forward-heuristic", 0.5);
    price.in_range = false;
    return price;
  }

 private:
  static Price serial_price(const EmbeddingShape& s, const Gpu& gpu) {
    constexpr double kWarps = 8192, kColumns = 32, kFixedTrips = 1.4;
    constexpr double kHitUs = 0.139, kMissUs = 0.288, kPieceClocks = 81, kRowClocks = 12.1;
    constexpr double kDramShare = 0.46, kRange = 0.3;
    const EmbeddingRates rates = embedding_rates(s, gpu);
    const EmbeddingTraffic t = embedding_forward_traffic(s, rates);
    const double pieces = static_cast<double>(s.batch) * static_cast<double>(s.num_tables) *
                          std::ceil(s.dim / kColumns);
    const double side_by_side = std::min(kWarps, rates.bags_in_flight / kOccupancy);
    const double waits = std::max(1.0, pieces / side_by_side) * s.pooling_factor *
                         (kHitUs * t.hit_rate + kMissUs * (1 - t.hit_rate));
    const double issue =
        pieces * (kPieceClocks + kRowClocks * s.pooling_factor) / terms::sm_clocks_per_us(gpu);
    const double memory = std::hypot(t.l2_bytes / rates.l2_bytes_per_us,
                                     t.dram_bytes / (kDramShare * rates.dram_bytes_per_us));
    const double latency =
        terms::empty_kernel_us(gpu) + kFixedTrips * terms::kConstants.dram_latency_us;
    Price price = terms::make_price(std::max(waits, issue), memory, latency,
                                    "embedding-forward-heuristic", kRange);
    if (price.bound == Bound::kCompute) price.bound = Bound::kLatency;  // loads wait, FLOP do not
    price.in_range = law_of(s).is_valid;
    return price;
  }
};

/// Backward with optimizer, its main kernel (sort passes are kernels of their own): gradients of
/// the bags are read once per lookup through L2, each touched row and its optimizer state is read
/// and written once:
///
///   U = expected distinct rows of B L draws per table (`IndexSkew::unique_rows`)
///   DRAM bytes = T (B R(D o) + U (2 R(D w) + state)) + B T L (index + 8)
///   L2 bytes   = B T L R(D o)
///   t = t_empty + 4 t_dram + f(D) max(DRAM bytes / B_DRAM, L2 bytes / B_L2) / 0.8
///
/// 0.8: read-modify-write turns the DRAM bus round. Rows that draw a large part of all lookups are
/// summed by one block each and take longer.
class EmbeddingBackward final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr double kReadWriteShare = 0.8;  // for work without a shape
    const auto* s = std::get_if<EmbeddingShape>(&work.shape);
    const double latency = terms::empty_kernel_us(gpu) + 4 * terms::kConstants.dram_latency_us;
    if (!s) {
      Price price = terms::make_price(
          0, work.bytes().value / (kReadWriteShare * terms::dram_bytes_per_us(gpu)), latency,
          "embedding-backward-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    const EmbeddingBackwardTraffic t = embedding_backward_traffic(*s);
    const double memory = t.cost_factor * std::max(t.dram_bytes / terms::dram_bytes_per_us(gpu),
                                                   t.l2_bytes / terms::l2_bytes_per_us(gpu));
    Price price = terms::make_price(0, memory, latency, "embedding-backward-heuristic", 0.4);
    price.in_range = law_of(*s).is_valid;
    return price;
  }
};

}  // namespace

const KernelModel& embedding_forward_model() { return the_only<EmbeddingForward>(); }

const KernelModel& embedding_backward_model() { return the_only<EmbeddingBackward>(); }

}  // namespace kernels
}  // namespace perfmodel
