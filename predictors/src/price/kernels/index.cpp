#include <algorithm>
#include <cmath>

#include "models.hpp"
#include "price/index_skew.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Rows found by index (r rows of c elements, p: probability of the most frequent row):
///
///   t      = t_empty + 3 t_dram + max(bytes / B, issue)
///   gather   issue = r block / clock                       one block per row
///            issue = r c / (0.51 SMs clock)                a thread per element (`block` 0)
///   add      issue = max(r c / (adds SMs), r p hot) / clock   an atomic add per element
///   sorted   issue = r ceil(c / 128) warp / (SMs clock)    a warp per index
///
/// B: a share of the reachable DRAM or L2 rate, as for streams: partly used sectors, and an index
/// load before each data load. Rates are PyTorch's kernels' (`IndexRates`). Gathers of rows that
/// are no multiple of 16 bytes run with a thread per element, which their bytes bound. Before
/// PyTorch 2.8 all did, with the index of each element divided out (`kElementRate`). The time of a
/// sorted sum on a row that many indices share (one warp adds them all) is not priced.
class Index final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr double kShare = 0.95, kRoundTrips = 3, kRange = 0.5;
    const double memory = terms::stream_time(gpu, work.bytes().value, kShare);
    const double flop_us = work.flop.value > 0
                               ? work.flop.value / (0.5 * gpu.peak(work.dtype, false).value * 1e-6)
                               : 0;
    const auto* rows = std::get_if<RowShape>(&work.shape);
    const double compute =
        std::max(flop_us, rows && rows->rows > 0 ? issue_us(*rows, work, gpu) : 0);
    const double latency =
        terms::empty_kernel_us(gpu) + kRoundTrips * terms::kConstants.dram_latency_us;
    return terms::make_price(compute, memory, latency, "index-heuristic", kRange);
  }

 private:
  static double issue_us(const RowShape& shape, const KernelWork& work, const Gpu& gpu) {
    const IndexRates& rates = gpu.architecture.index_rates;
    const auto rows = static_cast<double>(shape.rows);
    const auto cols = static_cast<double>(shape.cols);
    const double clock = terms::clock_mhz(gpu), sm_clocks = terms::sm_clocks_per_us(gpu);
    switch (shape.access) {
      case RowAccess::kRead: {
        constexpr double kVector = 16;
        // Embeddings of 768 and 4,096 fp32 columns on A100 (linkedin/Liger-Kernel, commit ead96b61,
        // BSD-2-Clause).
        constexpr double kElementRate = 0.51;
        if (rates.block <= 0) return rows * cols / (kElementRate * sm_clocks);
        const double row_bytes = work.bytes_written.value / rows;
        return std::fmod(row_bytes, kVector) == 0 ? rows * rates.block / clock : 0;
      }
      case RowAccess::kAdd: {
        const bool half = size_in_bytes(work.dtype) == 2;
        const double rate = half ? rates.half_adds : rates.adds;
        const double hot = rows * most_frequent(shape) * rates.hot_row / clock;
        return rate > 0 ? std::max(rows * cols / (rate * sm_clocks), hot) : hot;
      }
      case RowAccess::kSortedAdd: {
        constexpr double kColsPerWarp = 128;
        return rows * std::ceil(cols / kColsPerWarp) * rates.sorted_warp / sm_clocks;
      }
    }
    return 0;
  }

  /// Share of the indices that name the most frequent row.
  static double most_frequent(const RowShape& shape) {
    if (shape.table_rows <= 0) return 0;
    const auto table_rows = static_cast<double>(shape.table_rows);
    return IndexSkew({.rows = table_rows, .exponent = shape.zipf_exponent}).top_mass(1);
  }
};

}  // namespace

const KernelModel& index_model() { return the_only<Index>(); }

}  // namespace perfmodel::kernels
