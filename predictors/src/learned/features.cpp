#include "features.hpp"

#include <algorithm>
#include <cmath>

#include "../kernels/convolution.hpp"
#include "../kernels/terms.hpp"

namespace perfmodel::learned {
namespace {

float log2_of(double x) { return static_cast<float>(std::log2(std::max(x, 1e-9))); }

/// Writes features one after the other, in the order of the specs.
class Writer {
 public:
  explicit Writer(FeatureRow& row) : row_(row) {}
  void add(double value) { row_[count_++] = static_cast<float>(value); }
  void add_log2(double value) { row_[count_++] = log2_of(value); }
  /// Sizes beyond `most` behave as `most` does: the GPU is full.
  void add_log2(double value, double most) { add_log2(std::min(value, most)); }

 private:
  FeatureRow& row_;
  std::size_t count_ = 0;
};

/// Powers of two in x up to 8: what vector loads and 32-byte sectors care about. (Larger powers are
/// rare in random sweeps and the rule in real models: trees must not tell them apart.)
double alignment(std::int64_t x) { return x % 8 == 0 ? 3 : x % 4 == 0 ? 2 : x % 2 == 0 ? 1 : 0; }

double lanes_per_sm(const Gpu& gpu) {
  return gpu.peak(DType::kFloat32, false).value /
         (2e6 * terms::clock_mhz(gpu) * static_cast<double>(gpu.num_sms));
}

/// The device, without absolute sizes: they do not extrapolate in trees.
void add_device(Writer& out, const KernelWork& work, const Gpu& gpu) {
  const double peak = gpu.peak(work.dtype, work.matrix_units).value;
  out.add_log2(peak / gpu.dram_bandwidth.value);
  out.add_log2(gpu.dram_bandwidth.value / (1e6 * terms::clock_mhz(gpu) * gpu.num_sms));
  out.add_log2(gpu.l2_size.value / gpu.num_sms);
  out.add(terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units) / (peak * 1e-6));
  out.add_log2(lanes_per_sm(gpu));
  out.add(gpu.vendor == "amd" ? 1 : 0);
}
#define PERFMODEL_DEVICE_FEATURES                                                          \
  {"log2_flop_per_byte_of_device"}, {"log2_dram_bytes_per_clock_per_sm"},                  \
      {"log2_l2_bytes_per_sm"}, {"sustained_share_of_peak"}, {"log2_fp32_lanes_per_sm"}, { \
    "is_amd"                                                                               \
  }

void add_balance(Writer& out, const KernelWork& work, const Gpu& gpu, const Price& baseline) {
  const double balance = gpu.peak(work.dtype, work.matrix_units).value / gpu.dram_bandwidth.value;
  const double bytes = std::max(1.0, work.bytes().value);
  out.add_log2(std::max(work.flop.value, 1.0) / bytes / balance);
  out.add_log2(baseline.compute.count() / std::max(1e-3, baseline.memory.count()));
  out.add_log2(baseline.time.count(), 4096);
  out.add_log2(baseline.time.count() / std::max(0.1, baseline.latency.count()), 1024);
  out.add_log2(bytes / gpu.l2_size.value, 64);
}
#define PERFMODEL_BALANCE_FEATURES                                                     \
  {"log2_intensity_over_balance"}, {"log2_compute_over_memory"}, {"log2_baseline_us"}, \
      {"log2_time_over_latency"}, {                                                    \
    "log2_bytes_over_l2"                                                               \
  }

/// Waves of a tile size: work per SM, share of the last wave that is filled, share of the tiles'
/// area that is result.
void add_tile(Writer& out, double batch, std::int64_t m, std::int64_t n, std::int64_t tile_m,
              std::int64_t tile_n, const Gpu& gpu) {
  const auto blocks_m = static_cast<double>((m + tile_m - 1) / tile_m);
  const auto blocks_n = static_cast<double>((n + tile_n - 1) / tile_n);
  const double waves = batch * blocks_m * blocks_n / gpu.num_sms;
  out.add_log2(waves, 32);
  out.add(waves / std::ceil(waves));
  out.add(static_cast<double>(m) * static_cast<double>(n) /
          (blocks_m * blocks_n * static_cast<double>(tile_m * tile_n)));
}
#define PERFMODEL_TILE_FEATURES(TILE) \
  {"log2_waves_" TILE}, {"filled_waves_" TILE}, { "filled_tiles_" TILE }

constexpr FeatureSpec kGemmSpecs[] = {
    {"log2_m", true},
    {"log2_n", true},
    {"log2_k", true},
    {"log2_batch", true},
    {"align_m"},
    {"align_n"},
    {"align_k"},
    {"layout"},
    PERFMODEL_TILE_FEATURES("128x128"),
    PERFMODEL_TILE_FEATURES("128x64"),
    PERFMODEL_TILE_FEATURES("64x128"),
    PERFMODEL_TILE_FEATURES("64x64"),
    PERFMODEL_TILE_FEATURES("128x32"),
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_gemm(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* g = std::get_if<GemmShape>(&work.shape);
  if (!g || std::min({g->batch, g->m, g->n, g->k}) < 1) return false;
  Writer out(row);
  const auto batch = static_cast<double>(g->batch);
  for (std::int64_t size : {g->m, g->n, g->k}) out.add_log2(static_cast<double>(size));
  out.add_log2(batch, 64);
  for (std::int64_t size : {g->m, g->n, g->k}) out.add(alignment(size));
  out.add((g->a_transposed ? 1 : 0) + (g->b_transposed ? 2 : 0) + (g->has_bias ? 4 : 0));
  add_tile(out, batch, g->m, g->n, 128, 128, gpu);
  add_tile(out, batch, g->m, g->n, 128, 64, gpu);
  add_tile(out, batch, g->m, g->n, 64, 128, gpu);
  add_tile(out, batch, g->m, g->n, 64, 64, gpu);
  add_tile(out, batch, g->m, g->n, 128, 32, gpu);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kConvolutionSpecs[] = {
    {.name = "pass", .is_axis = true, .is_kind = true},
    {"log2_batch", true},
    {"log2_channels_in", true},
    {"log2_channels_out", true},
    {"log2_height", true},
    {"log2_width"},
    {"log2_results_per_image"},
    {.name = "filter_height", .is_axis = true, .is_kind = true},
    {"filter_width"},
    {.name = "stride", .is_axis = true, .is_kind = true},
    {"log2_groups"},
    {"align_channels_in"},
    {"align_channels_out"},
    {"filled_winograd2_tiles"},
    {"filled_winograd4_tiles"},
    {"log2_fused_winograd_over_baseline"},
    {"log2_staged_winograd_over_baseline"},
    {"log2_winograd4_tiles"},
    {"log2_gemm_k"},
    PERFMODEL_TILE_FEATURES("128x128"),
    PERFMODEL_TILE_FEATURES("128x64"),
    PERFMODEL_TILE_FEATURES("128x32"),
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_convolution(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                      FeatureRow& row) {
  const auto* c = std::get_if<ConvolutionShape>(&work.shape);
  if (!c || std::min({c->n, c->c, c->k, c->h, c->w, c->p, c->q, c->groups}) < 1) return false;
  using Pass = ConvolutionShape::Pass;
  Writer out(row);
  out.add(static_cast<double>(c->pass));
  for (std::int64_t size : {c->n, c->c / c->groups, c->k / c->groups, c->h, c->w, c->p * c->q}) {
    out.add_log2(static_cast<double>(size));
  }
  for (std::int64_t value : {c->r, c->s, c->stride}) out.add(static_cast<double>(value));
  out.add_log2(static_cast<double>(c->groups));
  out.add(alignment(c->c / c->groups));
  out.add(alignment(c->k / c->groups));
  const auto filled = [c](std::int64_t tile) {
    return static_cast<double>(c->p * c->q) /
           static_cast<double>((c->p + tile - 1) / tile * tile * ((c->q + tile - 1) / tile * tile));
  };
  out.add(filled(2));
  out.add(filled(4));
  const kernels::ConvolutionTimes times = kernels::convolution_times(*c, work.bytes().value, gpu);
  constexpr double kMost = 16;  // also where the algorithm does not apply
  out.add_log2(times.fused_winograd / baseline.time.count(), kMost);
  out.add_log2(times.staged_winograd / baseline.time.count(), kMost);
  out.add_log2(static_cast<double>(c->n * ((c->p + 3) / 4) * ((c->q + 3) / 4)));
  const std::int64_t in = c->c / c->groups, filters = c->k / c->groups;
  std::int64_t m = c->n * c->p * c->q, n = filters, k = in * c->r * c->s;
  if (c->pass == Pass::kInputGradient) {
    m = c->n * c->h * c->w;
    n = in;
    k = filters * c->r * c->s;
  } else if (c->pass == Pass::kWeightGradient) {
    m = filters;
    n = in * c->r * c->s;
    k = c->n * c->p * c->q;
  }
  out.add_log2(static_cast<double>(k));
  add_tile(out, static_cast<double>(c->groups), m, n, 128, 128, gpu);
  add_tile(out, static_cast<double>(c->groups), m, n, 128, 64, gpu);
  add_tile(out, static_cast<double>(c->groups), m, n, 128, 32, gpu);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kStreamSpecs[] = {
    {"log2_bytes_per_sm", true},  {"read_share"},
    {"log2_flop_per_byte", true}, PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_stream(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const double bytes = work.bytes().value;
  if (!(bytes > 0)) return false;
  Writer out(row);
  out.add_log2(bytes / gpu.num_sms);
  out.add(work.bytes_read.value / bytes);
  out.add_log2(std::max(work.flop.value / bytes, 1.0 / 64));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kRowSpecs[] = {
    {"log2_rows", true},
    {"log2_cols", true},
    {"log2_rows_per_sm"},
    {"filled_waves"},
    {"log2_rows_in_flight_over_l2"},
    {"align_cols"},
    {"read_share"},
    {"log2_flop_per_byte"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_rows(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  const double bytes = work.bytes().value;
  if (!r || r->rows < 1 || r->cols < 1 || !(bytes > 0)) return false;
  Writer out(row);
  const double waves = static_cast<double>(r->rows) / gpu.num_sms;
  out.add_log2(static_cast<double>(r->rows), 65536);
  out.add_log2(static_cast<double>(r->cols));
  out.add_log2(waves, 1024);
  out.add(waves / std::ceil(waves));
  const double in_flight = std::min(static_cast<double>(r->rows),
                                    gpu.num_sms * std::max(1.0, gpu.max_threads_per_sm / 1024.0));
  const double row_bytes = work.bytes_written.value / static_cast<double>(r->rows);
  out.add_log2(in_flight * row_bytes / gpu.l2_size.value);
  out.add(alignment(r->cols));
  out.add(work.bytes_read.value / bytes);
  out.add_log2(std::max(work.flop.value / bytes, 1.0 / 64));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

template <std::size_t N>
constexpr FeatureSet make_set(const FeatureSpec (&specs)[N],
                              bool (*fill)(const KernelWork&, const Gpu&, const Price&,
                                           FeatureRow&)) {
  static_assert(N < kMaxFeatures, "one more column holds the chip");
  return {specs, fill};
}

constexpr FeatureSet kGemm = make_set(kGemmSpecs, fill_gemm);
constexpr FeatureSet kConvolution = make_set(kConvolutionSpecs, fill_convolution);
constexpr FeatureSet kStream = make_set(kStreamSpecs, fill_stream);
constexpr FeatureSet kRows = make_set(kRowSpecs, fill_rows);

}  // namespace

const FeatureSet* feature_set(KernelFamily family) {
  switch (family) {
    case KernelFamily::kGemm:
      return &kGemm;
    case KernelFamily::kConvolution:
      return &kConvolution;
    case KernelFamily::kElementwise:
      return &kStream;
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
      return &kRows;
    default:
      return nullptr;
  }
}

}  // namespace perfmodel::learned
