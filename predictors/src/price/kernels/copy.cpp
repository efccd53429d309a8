#include "models.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Copies by the copy engines:
///
///   host <-> device  t = t0 + bytes / (f B_pcie)     pinned f = 0.78, pageable f = 0.45
///   inside a device  t = t_empty + 2 t_dram + (bytes read + written) / B, L2-resident as for
///   streams device to device t = t0 + bytes / (0.8 B_link / 2), or PCIe pinned without link
///
/// B_pcie: theoretical rate of one direction. Pinned PCIe 3 x16 reaches ~ 12.3 of 15.75 GB/s
/// (packet headers); pageable copies are staged through a pinned buffer by the host: the reference
/// DLRM model measured 3.4-8.1 GB/s on PCIe 3 x16 hosts, i.e. 0.22-0.51 of the theoretical rate,
/// host memory dependent. t0: start-up of the engine, 1.5 us on the device (the host call is not
/// counted). Small pageable transfers (< 64 KiB) are staged into the command stream and seen at
/// pinned speed.
class Copy final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr double kPinnedShare = 0.78;
    constexpr double kPageableShare = 0.45;
    constexpr double kLinkShare = 0.8;
    constexpr double kStartUs = 1.5;
    constexpr double kStagedBytes = 64 * 1024;
    const auto* shape = std::get_if<CopyShape>(&work.shape);
    const double size = std::max(work.bytes_read.value, work.bytes_written.value);
    if (!shape || shape->kind == CopyKind::kDeviceToDevice) {
      const double memory = terms::stream_time(gpu, work.bytes().value, 1);
      return terms::make_price(0, memory,
                               terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us,
                               "copy-heuristic");
    }
    double rate = gpu.pcie_bandwidth.value * 1e-6;
    double range = 0.25;
    if (shape->kind == CopyKind::kPeer && gpu.link_bandwidth.value > 0) {
      rate = kLinkShare * gpu.link_bandwidth.value / 2 * 1e-6;
    } else if (shape->kind != CopyKind::kPeer && shape->pageable && size > kStagedBytes) {
      rate *= kPageableShare;
      range = 0.5;
    } else {
      rate *= kPinnedShare;
    }
    Price price = terms::make_price(0, size / rate, kStartUs, "copy-heuristic", range);
    if (price.bound == Bound::kMemory) price.bound = Bound::kLink;
    return price;
  }
};

}  // namespace

const KernelModel& copy_model() { return the_only<Copy>(); }

}  // namespace perfmodel::kernels
