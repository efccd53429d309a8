#include "models.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// One pass of a radix sort (the op rules give one KernelWork per pass):
///
///   t = t_empty + 3 t_dram + t_rank + bytes / (0.55 B_sheet)
///
/// Scattered writes of short runs reach 0.5-0.6 of the data-sheet rate (onesweep's published 29.4
/// Gkey/s of 4-byte keys on A100 is 4 passes of 8 bytes per key = 0.94 TB/s of 1.56; Adinets and
/// Merrill 2022, recalled, not re-read). t_rank: ranking of one tile in shared memory, ~ 4 us. A
/// block that sorts a tile alone (`flop` = elements x passes) needs about 2 us per pass. Valid for
/// uniform keys.
class Sort final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr double kBandwidthShare = 0.55 / 0.88;
    constexpr double kRankUs = 4;
    constexpr double kSingleBlockElementsPerUs = 2000;
    const double memory = work.bytes().value / (kBandwidthShare * terms::dram_bytes_per_us(gpu));
    double in_block = work.flop.value / kSingleBlockElementsPerUs;
    if (const auto* shape = std::get_if<RowShape>(&work.shape)) {  // many blocks sort side by side
      in_block /= static_cast<double>(std::clamp<std::int64_t>(shape->rows, 1, gpu.num_sms));
    }
    const double latency =
        terms::empty_kernel_us(gpu) + 3 * terms::kConstants.dram_latency_us + kRankUs;
    return terms::make_price(in_block, memory, latency, "sort-heuristic", 0.5);
  }
};

}  // namespace

const KernelModel& sort_model() { return the_only<Sort>(); }

}  // namespace perfmodel::kernels
