#include "analytic_device.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "../families/draw.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Gpu;
using perfmodel::KernelWork;

constexpr double kFixedUs = 1.8;
constexpr double kSms = 100;
constexpr double kBytesPerUs = 1.4e6;     // 1400 GB/s
constexpr double kLinkBytesPerUs = 24e3;  // 24 GB/s
constexpr double kSideBytes = 0.6e6;
constexpr double kVectorFlopPerUs = 18e6;  // 18 TFLOP/s
constexpr double kNoise = 0.004;

double peak_flop_per_us(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 19e6;
    case DType::kTf32: return 75e6;
    default: return 150e6;
  }
}

double product_us(const GemmCase& c) {
  const auto tiles = [](std::int64_t size, std::int64_t tile) {
    return static_cast<double>((size + tile - 1) / tile);
  };
  const double waves =
      std::ceil(static_cast<double>(c.batch) * tiles(c.m, 128) * tiles(c.n, 64) / kSms);
  const double tile_flop = 2.0 * 128 * 64 * static_cast<double>(c.k + 96);
  return waves * tile_flop / (peak_flop_per_us(c.dtype) / kSms) * (c.a_transposed ? 1.05 : 1);
}

double embedding_bytes(const EmbeddingCase& c) {
  const auto lookups = static_cast<double>(c.batch * c.pooling);
  const auto rows = static_cast<double>(c.rows);
  const double distinct = rows * -std::expm1(-lookups / rows);  // per table, uniform indices
  const double row = static_cast<double>(c.dim) * bytes_of(c.weights);
  const double row_bytes =
      static_cast<double>(c.tables) * distinct * row * (0.5 + 0.5 * std::exp(-c.zipf_exponent));
  const double rest = static_cast<double>(c.tables * c.batch) *
                      (static_cast<double>(c.dim) * 4 + static_cast<double>(c.pooling) * 8);
  return rest + (c.pass == Pass::kForward ? 1 : 2.2) * row_bytes;
}

struct Law {
  const KernelWork& work;

  double combined(double compute, double memory) const {
    return kFixedUs + std::pow(std::pow(compute, 4) + std::pow(memory, 4), 0.25);
  }
  double memory(double factor = 1) const {
    return factor * (work.bytes().value + 2 * kSideBytes) / kBytesPerUs;
  }
  double vector_compute() const { return work.flop.value / kVectorFlopPerUs; }

  template <class AnyCase>
  double operator()(const AnyCase&) const {
    return combined(vector_compute(), memory());
  }
  double operator()(const GemmCase& c) const { return combined(product_us(c), memory()); }
  double operator()(const ConvolutionCase& c) const {
    return combined(work.flop.value / (0.6 * peak_flop_per_us(c.dtype)), memory());
  }
  double operator()(const EmbeddingCase& c) const {
    const double sorting = c.optimizer == EmbeddingCase::Optimizer::kRowWiseAdagrad ? 1.6 : 1;
    const double bytes = embedding_bytes(c) * (c.pass == Pass::kBackward ? sorting : 1);
    return combined(0, (bytes + 2 * kSideBytes) / kBytesPerUs);
  }
  double operator()(const MemoryCase& c) const {
    using Kind = MemoryCase::Kind;
    const bool over_link = c.kind == Kind::kHostToDevice || c.kind == Kind::kDeviceToHost;
    if (over_link)
      return 6 + static_cast<double>(c.bytes) / (kLinkBytesPerUs * (c.pinned ? 1 : 0.4));
    return combined(0, memory(c.kind == Kind::kStrided && c.row_bytes < 128 ? 1.25 : 1));
  }
  double operator()(const RowCase& c) const {
    return combined(vector_compute(), memory(c.strided ? 1.25 : 1));
  }
  double operator()(const PeakCase& c) const {
    using Kind = PeakCase::Kind;
    const auto count = static_cast<double>(c.bytes);
    switch (c.kind) {
      case Kind::kCopyBandwidth: return combined(0, memory());
      case Kind::kReadBandwidth:
        return kFixedUs + count / (count <= 40e6 ? 3 * kBytesPerUs : kBytesPerUs);
      case Kind::kFma: return kFixedUs + count / peak_flop_per_us(c.dtype);
      case Kind::kMatrix:
        return (*this)(GemmCase{.dtype = c.dtype, .m = c.bytes, .n = c.bytes, .k = c.bytes});
      case Kind::kLaunch: return 2.5;
      case Kind::kEmptyKernel: return kFixedUs;
      case Kind::kEventRecord: return 0.9;
      case Kind::kEventWait: return 2.1;
      case Kind::kStreamSync: return 1.6;
      case Kind::kCopyCall: return 4.0;
      case Kind::kGraphLaunch: return 5 + 0.02 * count;
    }
    return 0;
  }
};

class AnalyticDevice final : public Device {
 public:
  AnalyticDevice() {
    info_.name = "Analytic GPU";
    info_.vendor = "analytic";
    info_.target = "sm_80";
    info_.driver = info_.runtime = "none";
    info_.libraries = {{"law", "1", ""}};
    info_.memory_bytes = info_.free_bytes = std::int64_t{32} << 30;
    info_.l2_bytes = std::int64_t{40} << 20;
    info_.num_sms = static_cast<int>(kSms);
    info_.max_threads_per_sm = 2048;
    info_.warp_size = 32;
    info_.shared_memory_per_sm = 164 * 1024;
    info_.clock_mhz = 1500;
    info_.memory_clock_mhz = 1500;
    info_.memory_bus_bits = 4096;  // 1536 GB/s
  }

  const DeviceInfo& info() const override { return info_; }

  Clocks clocks() override {
    return {.sm_mhz = 1500, .memory_mhz = 1500, .temperature_c = 50, .power_w = 200};
  }

  Outcome<Measurement> measure(const Case& point, const MeasureOptions& options) override {
    if (footprint_bytes(point) > static_cast<double>(info_.free_bytes)) {
      return tl::unexpected(Failure{FailureKind::kOutOfMemory, "does not fit into 32 GiB"});
    }
    const double time = analytic_time_us(point);
    const auto repetitions = static_cast<int>(
        std::clamp(options.seconds * 1e6 / time, static_cast<double>(options.min_repetitions),
                   static_cast<double>(options.max_repetitions)));
    Measurement measured{.max_error = 0, .kernel = "law"};
    Draw draw(options.seed, name_of(point), 0);
    for (int i = 0; i < repetitions; ++i) {
      measured.times_us.push_back(time * std::exp(kNoise * normal(draw)));
    }
    return measured;
  }

 private:
  static double normal(Draw& draw) {  // Box and Muller
    const double radius = std::sqrt(-2 * std::log(1 - draw.uniform()));
    return radius * std::cos(2 * std::numbers::pi * draw.uniform());
  }

  DeviceInfo info_;
};

}  // namespace

double analytic_time_us(const Case& point) {
  static const Gpu kNoGpu;  // the law needs sizes alone
  const KernelWork work = work_of(point, kNoGpu);
  return std::visit(Law{work}, point);
}

std::unique_ptr<Device> make_analytic_device() { return std::make_unique<AnalyticDevice>(); }

}  // namespace kernels_bench
