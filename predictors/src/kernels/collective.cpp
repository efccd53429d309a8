#include <string_view>

#include "models.hpp"
#include "terms.hpp"

namespace perfmodel::kernels {
namespace {

/// One link technology: t = alpha + hops h + wire_bytes / B.
struct LinkConstants {
  std::string_view architecture;  ///< of the GPU; empty: any
  double alpha_us;                ///< start of the collective
  double hop_us;                  ///< per ring step
  double share;                   ///< of one-way link bandwidth that the bus bandwidth reaches
};

/// NVLink: alpha and share from the ring fits to measured NCCL all-reduce tables, 1 MiB-1 GiB (A100
/// NVSwitch: 44.6 us, 193 GB/s for n = 2; 52.8 us, 218 for 4; 77.1 us, 227 for 8, of 300 GB/s
/// one-way; V100 mesh, 8: 75.4 us, 136 of 150). Those alphas hold above 1 MiB; below, the
/// low-latency protocol starts in ~ 7-14 us (NCCL tuning model: base 6.6, hop 0.6-1.9 NVLink,
/// 1.0-2.5 PCIe).
constexpr LinkConstants kNvlink[] = {{"volta", 20, 3.4, 0.85},     {"pascal", 20, 3.4, 0.75},
                                     {"ampere", 35, 2.6, 0.74},    {"hopper", 25, 2.6, 0.80},
                                     {"blackwell", 25, 2.6, 0.80}, {"", 35, 3.0, 0.74}};
constexpr LinkConstants kXgmi = {"", 35, 4.0, 0.65};
/// Shared host bridges: NCCL takes 12 GB/s for PCIe 3 x16 (0.76 of 15.75), all ranks of one switch
/// share it.
constexpr LinkConstants kPcie = {"", 25, 5.7, 0.70};

/// NCCL's low-latency protocol: 8 data bytes travel with 8 flag bytes, so half the bandwidth, but
/// little latency.
constexpr double kLowLatencyBaseUs = 9;
constexpr double kLowLatencyHopShare = 0.4;
constexpr double kLowLatencyShare = 0.25;

/// Time on the wire of one collective that all ranks enter together (waiting for late ranks is the
/// scheduler's business):
///
///   t = min over protocols of (alpha + steps hop + factor S / B)
///
/// S [bytes]: all-reduce, broadcast, reduce: the buffer; all-gather: the output; reduce-scatter,
/// all-to-all: the larger of input and output. n ranks; steps and factor (ring): all-reduce 2
/// (n-1), 2 (n-1)/n; all-gather, reduce-scatter, all-to-all n-1, (n-1)/n; broadcast, reduce, send
/// n-1, 1. B = share x one-way link bandwidth of a GPU; without link, PCIe. One node only. A
/// recorded group size of 0 (unknown) is priced as 8 and marked out of range.
class Collective final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* shape = std::get_if<CollectiveShape>(&work.shape);
    const std::string_view kind = shape ? std::string_view(shape->kind) : "all_reduce";
    const bool known = shape && shape->world_size > 0;
    const double n = known ? static_cast<double>(shape->world_size) : 8;
    const double in = work.bytes_read.value, out = work.bytes_written.value;
    double size = std::max(in, out), steps = n - 1, factor = (n - 1) / n;
    if (kind == "all_reduce") {
      size = in;
      steps = 2 * (n - 1);
      factor = 2 * (n - 1) / n;
    } else if (kind == "broadcast" || kind == "reduce" || kind == "send" || kind == "recv") {
      factor = n > 1 ? 1 : 0;
      if (kind == "send" || kind == "recv") steps = 1;
    }
    const LinkConstants* link = &kPcie;
    double one_way = gpu.pcie_bandwidth.value * 1e-6;
    if (gpu.link_bandwidth.value > 0) {
      one_way = gpu.link_bandwidth.value / 2 * 1e-6;
      link = &kXgmi;
      if (gpu.link_type == "nvlink") {
        for (const LinkConstants& candidate : kNvlink) {
          link = &candidate;
          if (candidate.architecture == gpu.architecture) break;
        }
      }
    }
    const double bus = link->share * one_way;
    double latency, wire;
    if (n <= 1) {  // NCCL still launches a kernel that copies (nothing in place)
      latency = terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us;
      wire = 0;
    } else {
      latency = link->alpha_us + steps * link->hop_us;
      wire = factor * size / bus;
      const double ll_latency = kLowLatencyBaseUs + steps * kLowLatencyHopShare * link->hop_us;
      const double ll_wire = factor * size / (kLowLatencyShare * one_way);
      if (ll_latency + ll_wire < latency + wire) {
        latency = ll_latency;
        wire = ll_wire;
      }
    }
    Price price = terms::make_price(0, wire, latency, "collective-heuristic", 0.3);
    if (price.bound == Bound::kMemory) price.bound = Bound::kLink;
    price.in_range = known && n <= 16;
    return price;
  }
};

}  // namespace

const KernelModel& collective_model() {
  static const Collective model;
  return model;
}

}  // namespace perfmodel::kernels
