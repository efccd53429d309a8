#include <algorithm>
#include <cmath>

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Constants of one kind of streaming kernel.
struct StreamConstants {
  std::string_view model;
  double bandwidth_share;  ///< share of the reachable DRAM rate
  double round_trips;      ///< dependent memory round trips of the shortest kernel
  double fixed_us;         ///< other fixed cost
  double relative_range;
};

/// Kernels that move every byte once:
///
///   t = t_empty + n t_dram + max(bytes_hit / B_L2 + bytes_miss / (s B_DRAM), flop / (0.5 peak))
///
/// t_empty [us] empty kernel, n dependent round trips of t_dram [us], B [bytes/us]. bytes_hit is
/// the part that is in the last-level cache because the kernel before wrote it: a working set of
/// up to half the cache hits, beyond twice nothing does, with a linear change between (cyclic
/// streams through a hashed LRU-like cache). Valid for dense contiguous tensors of any size;
/// `Elementwise` knows the others. Constants: see `terms::Constants` and below;
/// checked on NeuSight's elementwise train rows.
class Stream : public KernelModel {
 public:
  explicit Stream(const StreamConstants& constants) : c_(constants) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const double memory = terms::stream_time(gpu, work.bytes().value, c_.bandwidth_share);
    const double compute = work.flop.value > 0
                               ? work.flop.value / (0.5 * gpu.peak(work.dtype, false).value * 1e-6)
                               : 0;
    const double latency = terms::empty_kernel_us(gpu) +
                           c_.round_trips * terms::kConstants.dram_latency_us + c_.fixed_us;
    return terms::make_price(compute, memory, latency, c_.model, c_.relative_range);
  }

 private:
  StreamConstants c_;
};

/// Constants of a variant of PyTorch's elementwise kernels.
struct Variant {
  double ElementwiseRates::*rate;
  double amd_round_trips;  ///< more than a contiguous kernel's, of the shortest kernel
  double below, above;     ///< shares of the rest of the time that the range spans
  double share = 1;        ///< share of the rate
};

/// The index of each element goes through a division per axis where tensors do not lie alike. Read
/// across rows, an element is a memory sector of its own: 0.5 elements per clock and SM on H100 and
/// H200, in both types (copies and sums of the ops in data/measurements). Casts from a half type
/// are lighter than sums and products of two types, casts to one run in vectors as if of one type.
constexpr Variant kBf16 = {&ElementwiseRates::contiguous_bf16, 0, 0.4, 0.4};
constexpr Variant kBroadcast = {&ElementwiseRates::broadcast, 2, 0.4, 0.4};
constexpr Variant kStrided = {&ElementwiseRates::strided, 2, 0.4, 2.0};
constexpr Variant kTransposed = {&ElementwiseRates::strided, 2, 0.4, 0.6, 0.34};
constexpr Variant kMixedTypes = {&ElementwiseRates::mixed_types, 0, 0.45, 0.6};
constexpr Variant kCast = {&ElementwiseRates::mixed_types, 0, 0.45, 0.6, 1.27};
constexpr Variant kUpsampled3d = {&ElementwiseRates::upsample_3d, 2, 0.4, 0.4};

const Variant* variant_of(const KernelWork& work) {
  switch (work.layout) {
    case Layout::kContiguous: return work.dtype == DType::kBFloat16 ? &kBf16 : nullptr;
    case Layout::kBroadcast: return &kBroadcast;
    case Layout::kStrided: return &kStrided;
    case Layout::kTransposed: return &kTransposed;
    case Layout::kMixedTypes:
      if (work.bytes_read.value > work.bytes_written.value) return &kMixedTypes;  // several inputs
      return work.dtype == DType::kFloat32 ? nullptr : &kCast;
    case Layout::kUpsampled3d: return &kUpsampled3d;
    case Layout::kGenerated: return nullptr;
  }
  return nullptr;
}

double together(double a_us, double b_us) {
  return std::cbrt(a_us * a_us * a_us + b_us * b_us * b_us);
}

/// A kernel that a compiler wrote for a chain of ops:
///
///   t = t_empty + 2 t_dram + together(stream, flop / (0.5 fp32 peak))
///
/// It computes in fp32 and in registers, whatever its tensors are, and no layout costs it more. If
/// it combines rows, one warp or block takes a row through loads, sums and stores, all rows at the
/// same time: the two terms add up. Checked on the 22 kernels of a compiled GPT-2 on H100
/// (docs/kernel_models.md).
Price generated_price(const KernelWork& work, const Gpu& gpu, double latency_us) {
  constexpr double kRange = 0.3;
  const double memory = terms::stream_time(gpu, work.bytes().value, 1);
  const double compute = work.flop.value / (0.5 * gpu.peak(DType::kFloat32, false).value * 1e-6);
  const bool combines_rows = std::holds_alternative<RowShape>(work.shape);
  Price price = terms::make_price(compute, memory, latency_us, "generated-heuristic", kRange);
  price.time =
      Microseconds{latency_us + (combines_rows ? memory + compute : together(memory, compute))};
  terms::set_range(price, kRange);
  return price;
}

/// Streams whose elements cost time of their own:
///
///   t = t_empty + n t_dram + together(stream, n_elements / (rate SMs clock))
///
/// with the rate of PyTorch's variant of the kernel. Memory and SMs slow each other down where both
/// are busy: together(a, b) = (a^3 + b^3)^(1/3), which holds the large kernels of H100 and H200 to
/// 3 to 7 % with one rate for both memories and types. On MI300X the larger of the two fits better.
/// A kernel that no rate bounds is priced as a plain stream.
class Elementwise final : public Stream {
 public:
  using Stream::Stream;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    if (is_cast(work) && work.bytes_written.value != work.bytes_read.value) {
      return Elementwise::price(cast_of_tables(work), gpu);
    }
    if (work.layout == Layout::kUpsampled3d &&
        gpu.architecture.elementwise_rates.upsample_3d <= 0) {
      KernelWork strided = work;
      strided.layout = Layout::kStrided;
      Price price = Elementwise::price(strided, gpu);
      price.in_range = false;
      return price;
    }
    const Price stream = Stream::price(work, gpu);
    if (work.layout == Layout::kGenerated) {
      return generated_price(work, gpu, stream.latency.count());
    }
    const Variant* variant = variant_of(work);
    const double rate = variant ? gpu.architecture.elementwise_rates.*variant->rate : 0;
    if (rate <= 0) return stream;
    const double elements = work.bytes_written.value / std::max(1, size_in_bytes(work.dtype));
    const double rated = rate * variant->share * terms::sm_clocks_per_us(gpu);
    const double compute = std::max(stream.compute.count(), elements / rated);
    const bool is_amd = gpu.vendor == "amd";
    const double latency =
        stream.latency.count() +
        (is_amd ? variant->amd_round_trips * terms::kConstants.dram_latency_us : 0);
    Price price = terms::make_price(compute, stream.memory.count(), latency, stream.model);
    if (!is_amd) price.time = Microseconds{latency + together(compute, stream.memory.count())};
    const double rest = price.time.count() - latency;
    price.low = Microseconds{0.5 * latency + (1 - variant->below) * rest};
    price.high = Microseconds{1.6 * latency + (1 + variant->above) * rest};
    return price;
  }
};

/// A stream with random numbers: the generator's state is loaded first. Forward, Philox's integer
/// rounds bound wide memories: elements per clock and SM read off dropout on H100 and H200, where
/// one rate fits both memories (data/measurements).
class Dropout final : public Stream {
 public:
  using Stream::Stream;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const Price stream = Stream::price(work, gpu);
    const bool makes_mask = work.bytes_written.value > work.bytes_read.value;
    if (gpu.vendor == "amd" || !makes_mask) return stream;
    const bool half = size_in_bytes(work.dtype) == 2;
    const double rate = (half ? 2.4 : 1.5) * terms::sm_clocks_per_us(gpu);
    const double rounds = work.bytes_read.value / size_in_bytes(work.dtype) / rate;
    Price price = terms::make_price(std::max(stream.compute.count(), rounds), stream.memory.count(),
                                    stream.latency.count(), stream.model);
    price.time = stream.latency + Microseconds{together(rounds, stream.memory.count())};
    terms::set_range(price, kRange);
    return price;
  }

  static constexpr double kRange = 0.35;
};

/// PyTorch's pooling kernels compute the place of each element of a window: elements per clock and
/// SM, alike for both types and both memories. Read off the kernels of ResNet-50 and Inception-v3
/// on H100 and H200 (data/measurements, batches of 4 to 64; within 3 %). NHWC: of one gradient.
class Pooling final : public Stream {
 public:
  using Stream::Stream;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const Price stream = Stream::price(work, gpu);
    const auto* shape = std::get_if<ConvolutionShape>(&work.shape);
    if (!shape || gpu.vendor != "nvidia") return stream;
    const double results = static_cast<double>(shape->n) * static_cast<double>(shape->p * shape->q);
    const double taps = results * static_cast<double>(shape->r * shape->s);
    const bool is_gradient = shape->pass == ConvolutionShape::Pass::kInputGradient;
    // Maxima have indices as well as results.
    const double bytes = is_gradient ? work.bytes_read.value : work.bytes_written.value;
    const bool is_max = bytes > 1.5 * results * size_in_bytes(work.dtype);
    const double rate = !is_gradient           ? (is_max ? 2.06 : 2.47)
                        : !is_max              ? 1.24
                        : shape->channels_last ? 0.97
                                               : 0.77;
    const double places = taps / (rate * terms::sm_clocks_per_us(gpu));
    return terms::make_price(std::max(stream.compute.count(), places), stream.memory.count(),
                             stream.latency.count(), stream.model, 0.4);
  }
};

}  // namespace

const KernelModel& elementwise_model() {
  static const Elementwise model({"elementwise-heuristic", 1.0, 2, 0, 0.25});
  return model;
}

/// Windows overlap: part of the reads comes from L1 and L2; the index arithmetic costs bandwidth.
const KernelModel& pooling_model() {
  static const Pooling model({"pooling-heuristic", 0.75, 2, 0, 0.4});
  return model;
}

/// Reference model of DLRM: 0.79 of the DRAM peak for concatenation; a table of pointers is read
/// first.
const KernelModel& concat_model() {
  static const Stream model({"concat-heuristic", 0.9, 3, 0, 0.3});
  return model;
}

/// Multi-tensor kernels walk a table of pointers in their arguments; blocks of 512 threads.
const KernelModel& optimizer_model() {
  static const Stream model({"optimizer-heuristic", 0.9, 3, 0, 0.3});
  return model;
}

const KernelModel& dropout_model() {
  static const Dropout model({"dropout-heuristic", 0.9, 3, 0, Dropout::kRange});
  return model;
}

/// Tiles of 32 x 32 through shared memory, one side of each in short runs (ATen's strided copies go
/// without and are up to several times slower). Published tiled transposes reach 0.75-0.9 of a
/// copy's rate (Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", 2009, recalled).
const KernelModel& transpose_model() {
  static const Stream model({"transpose-heuristic", 0.8, 3, 0, 0.5});
  return model;
}

/// Rows of the triangle start anywhere: parts of the sectors at both ends are wasted, about one of
/// 32 bytes per row of some 13 x 4 bytes (27 features), and the list of pairs is loaded first.
const KernelModel& interaction_model() {
  static const Stream model({"interaction-heuristic", 0.6, 3, 0, 0.5});
  return model;
}

/// Only writes.
const KernelModel& set_model() {
  static const Stream model({"set-heuristic", 1.0, 1, 0, 0.25});
  return model;
}

const KernelModel& part_model() {
  class Part final : public KernelModel {
    Price price(const KernelWork&, const Gpu&) const override { return {.model = "part"}; }
  };
  static const Part model;
  return model;
}

/// Kernels that only a launch template knows: set-up, layout changes, scans, splits. Their work is
/// unknown; 488 such kernels of up to 20 us in the public ResNet-50 trace (A100) take 5.5 us where
/// short and 7.6 us on average, 2.6 us more than a trivial elementwise kernel.
const KernelModel& small_model() {
  static const Stream model({"small-heuristic", 0.7, 2, 2.6, 0.5});
  return model;
}

}  // namespace perfmodel::kernels
