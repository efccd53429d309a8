#include <cmath>

#include "models.hpp"
#include "terms.hpp"

namespace perfmodel::kernels {
namespace {

constexpr double kSector = 32;

double round_to_sector(double bytes) { return std::ceil(bytes / kSector) * kSector; }

/// Constants of the reference model (Lin et al., code of 2023; see the file comment of the
/// functions below).
constexpr double kWarpsPerSm = 45;  ///< 64 warps x 0.71 measured occupancy
constexpr double kUsableL2 = 0.9;
constexpr double kTableOffsetBytes =
    32;  ///< table offset, and 64 of bag offsets, per bag and table
constexpr double kOffsetBytes = 64;

/// Narrow rows keep too few bytes in flight per warp. The reference model has steps (1.55 for D <=
/// 32, 1.1 for D <= 64, else 1) for fp32; here by bytes per row.
double narrow_row_factor(double row_bytes) {
  if (row_bytes <= 128) return 1.55;
  if (row_bytes <= 256) return 1.1;
  return 1;
}

/// Share of row reads that find their row in L2, for uniform indices. B bags, T tables, L pooling
/// factor, E rows per table, row [bytes]:
///
///   tables in flight n = ceil(SMs w / B)
///   rows of one table resident X = min(0.9 L2 / n / row, E, B L)
///   distinct rows touched U = E (1 - (1 - 1/E)^(B L))
///   hit = 1 - [X + (B L - X)(E - X) / E] / (B L)   if U > X;   1 - U / (B L)   otherwise
///
/// Both count cold misses. Skewed indices hit more often: the result is then an upper bound of the
/// time.
double l2_hit_rate(const EmbeddingShape& s, double row_bytes, const Gpu& gpu) {
  const double lookups = static_cast<double>(s.batch) * s.pooling_factor;
  if (lookups <= 1 || s.num_rows < 1) return 0;
  const double in_flight =
      std::min(static_cast<double>(s.num_tables),
               std::ceil(kWarpsPerSm * gpu.num_sms / std::max(1.0, static_cast<double>(s.batch))));
  const double cache = kUsableL2 * terms::cache_bytes(gpu);
  const double resident =
      std::min({std::floor(cache / std::max(1.0, in_flight) / row_bytes), s.num_rows, lookups});
  const double touched =
      s.num_rows > 1 ? -s.num_rows * std::expm1(lookups * std::log1p(-1 / s.num_rows)) : 1;
  const double misses = touched > resident
                            ? resident + (lookups - resident) * (s.num_rows - resident) / s.num_rows
                            : touched;
  return std::clamp(1 - misses / lookups, 0.0, 1.0);
}

struct EmbeddingTraffic {
  double dram = 0, l2 = 0;  ///< bytes
};

/// `row_visits`: 1 for a forward read, 2 for read and write back.
EmbeddingTraffic traffic(const EmbeddingShape& s, double row_visits, const Gpu& gpu) {
  const double bags = static_cast<double>(s.batch) * static_cast<double>(s.num_tables);
  const double row = round_to_sector(s.dim * s.weight_bytes);
  const double hit = l2_hit_rate(s, row, gpu);
  const double weights = row_visits * s.pooling_factor * row;
  EmbeddingTraffic t;
  t.l2 = bags * hit * weights;
  t.dram =
      bags * (kTableOffsetBytes + kOffsetBytes + round_to_sector(s.pooling_factor * s.index_bytes) +
              round_to_sector(s.dim * s.output_bytes) + (1 - hit) * weights);
  return t;
}

/// Rate of scattered row reads. The reference model's DRAM mover saturates at its measured stream
/// bandwidth for rows of 128 B and more.
double random_dram(const Gpu& gpu) { return terms::dram_bytes_per_us(gpu); }

/// Forward (reference model, "with L2, current version"):
///
///   DRAM bytes = B T (96 + R(8 L) + R(4 D) + (1 - hit) L R(4 D)),  L2 bytes = B T hit L R(4 D)
///   t = t_empty + 3 t_dram + f(D) max(DRAM bytes / B_DRAM, L2 bytes / B_L2)
///
/// R rounds up to 32-byte sectors; item sizes as given. Three dependent loads: offsets, index, row.
/// Valid for uniform indices, pooled sums; checked by its authors on V100 and A100 (geometric mean
/// error 8-10 %).
class EmbeddingForward final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* s = std::get_if<EmbeddingShape>(&work.shape);
    const double latency = terms::empty_kernel_us(gpu) + 3 * terms::kConstants.dram_latency_us;
    if (!s) {
      Price price = terms::make_price(0, work.bytes().value / random_dram(gpu), latency,
                                      "embedding-forward-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    const EmbeddingTraffic t = traffic(*s, 1, gpu);
    const double memory = narrow_row_factor(s->dim * s->weight_bytes) *
                          std::max(t.dram / random_dram(gpu), t.l2 / terms::l2_bytes_per_us(gpu));
    // One warp walks its bag with about 16 row reads in flight (estimate): the longest bag sets a
    // floor.
    const double chain = s->pooling_factor / 16 * terms::kConstants.dram_latency_us;
    Price price = terms::make_price(0, memory, latency + chain, "embedding-forward-heuristic", 0.3);
    price.in_range = s->dim >= 16 && s->dim <= 512 && s->pooling_factor <= 512;
    return price;
  }
};

/// Backward with optimizer, its main kernel (sort passes are kernels of their own): gradients of
/// the bags are read once per lookup through L2, each touched row and its optimizer state is read
/// and written once:
///
///   U = E (1 - (1 - 1/E)^(B L)) per table
///   DRAM bytes = T (B R(D o) + U (2 R(D w) + state)) + B T L (index + 8)
///   L2 bytes   = B T L R(D o)
///   t = t_empty + 4 t_dram + f(D) max(DRAM bytes / B_DRAM, L2 bytes / B_L2) / 0.8
///
/// 0.8: read-modify-write turns the DRAM bus round.
class EmbeddingBackward final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr double kReadWriteShare = 0.8;
    const auto* s = std::get_if<EmbeddingShape>(&work.shape);
    const double latency = terms::empty_kernel_us(gpu) + 4 * terms::kConstants.dram_latency_us;
    if (!s) {
      Price price = terms::make_price(0, work.bytes().value / (kReadWriteShare * random_dram(gpu)),
                                      latency, "embedding-backward-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    const double b = static_cast<double>(s->batch), tables = static_cast<double>(s->num_tables);
    const double lookups = b * s->pooling_factor;
    const double touched = s->num_rows > 1
                               ? -s->num_rows * std::expm1(lookups * std::log1p(-1 / s->num_rows))
                               : std::min(1.0, lookups);
    const double row = round_to_sector(s->dim * s->weight_bytes);
    const double gradient = round_to_sector(s->dim * s->output_bytes);
    const double dram = tables * (b * gradient + touched * (2 * row + s->optimizer_bytes_per_row) +
                                  lookups * (s->index_bytes + 8));
    const double l2 = tables * lookups * gradient;
    const double memory = narrow_row_factor(s->dim * s->weight_bytes) / kReadWriteShare *
                          std::max(dram / random_dram(gpu), l2 / terms::l2_bytes_per_us(gpu));
    return terms::make_price(0, memory, latency, "embedding-backward-heuristic", 0.4);
  }
};

}  // namespace

const KernelModel& embedding_forward_model() {
  static const EmbeddingForward model;
  return model;
}

const KernelModel& embedding_backward_model() {
  static const EmbeddingBackward model;
  return model;
}

}  // namespace perfmodel::kernels
