#include "models.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Baseline: t = max(flop / peak, bytes / bandwidth) with data-sheet figures and nothing else.
/// Copies to and from the host divide by the PCIe rate, collectives the larger buffer by the link's
/// one-way rate (PCIe without link). Never slower than the hardware could be; a lower bound by
/// construction (convolutions excepted: Winograd).
class Roofline final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    double compute = 0, memory = 0;
    Bound transfer = Bound::kMemory;
    const double peak = gpu.peak(work.dtype, work.matrix_units).value * 1e-6;
    if (work.flop.value > 0) compute = work.flop.value / peak;
    const auto* copy = std::get_if<CopyShape>(&work.shape);
    if (work.family == KernelFamily::kCollective) {
      const double link =
          gpu.link_bandwidth.value > 0 ? gpu.link_bandwidth.value / 2 : gpu.pcie_bandwidth.value;
      memory = std::max(work.bytes_read.value, work.bytes_written.value) / (link * 1e-6);
      compute = 0;
      transfer = Bound::kLink;
    } else if (copy &&
               (copy->kind == CopyKind::kHostToDevice || copy->kind == CopyKind::kDeviceToHost)) {
      memory = work.bytes_read.value / (gpu.pcie_bandwidth.value * 1e-6);
      transfer = Bound::kLink;
    } else {
      memory = work.bytes().value / (gpu.dram_bandwidth.value * 1e-6);
    }
    Price price;
    price.compute = Microseconds{compute};
    price.memory = Microseconds{memory};
    price.time = Microseconds{std::max(compute, memory)};
    price.low = price.high = price.time;
    price.bound = compute > memory ? Bound::kCompute : transfer;
    price.model = "roofline";
    return price;
  }
};

}  // namespace

const KernelModel& roofline_model() { return the_only<Roofline>(); }

}  // namespace perfmodel::kernels
