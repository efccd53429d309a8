#include "features.hpp"

#include <algorithm>
#include <cmath>

#include "price/expert_load.hpp"
#include "price/kernel_work.hpp"
#include "price/kernels/attention.hpp"
#include "price/kernels/batch_norm.hpp"
#include "price/kernels/convolution.hpp"
#include "price/kernels/models.hpp"
#include "price/kernels/quantize.hpp"
#include "price/terms.hpp"

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

#define PERFMODEL_GEMM_FEATURES                                                            \
  {"log2_m", true}, {"log2_n", true}, {"log2_k", true}, {"log2_batch", true}, {"align_m"}, \
      {"align_n"}, {"align_k"}, {"layout"}, PERFMODEL_TILE_FEATURES("128x128"),            \
      PERFMODEL_TILE_FEATURES("128x64"), PERFMODEL_TILE_FEATURES("64x128"),                \
      PERFMODEL_TILE_FEATURES("64x64"), PERFMODEL_TILE_FEATURES("128x32"),                 \
      PERFMODEL_BALANCE_FEATURES, PERFMODEL_DEVICE_FEATURES

constexpr FeatureSpec kGemmSpecs[] = {PERFMODEL_GEMM_FEATURES};

void add_gemm(Writer& out, const GemmShape& g, const KernelWork& work, const Gpu& gpu,
              const Price& baseline) {
  const auto batch = static_cast<double>(g.batch);
  for (std::int64_t size : {g.m, g.n, g.k}) out.add_log2(static_cast<double>(size));
  out.add_log2(batch, 64);
  for (std::int64_t size : {g.m, g.n, g.k}) out.add(alignment(size));
  out.add((g.a_transposed ? 1 : 0) + (g.b_transposed ? 2 : 0) + (g.has_bias ? 4 : 0));
  add_tile(out, batch, g.m, g.n, 128, 128, gpu);
  add_tile(out, batch, g.m, g.n, 128, 64, gpu);
  add_tile(out, batch, g.m, g.n, 64, 128, gpu);
  add_tile(out, batch, g.m, g.n, 64, 64, gpu);
  add_tile(out, batch, g.m, g.n, 128, 32, gpu);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
}

bool fill_gemm(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* g = std::get_if<GemmShape>(&work.shape);
  if (!g || std::min({g->batch, g->m, g->n, g->k}) < 1) return false;
  Writer out(row);
  add_gemm(out, *g, work, gpu, baseline);
  return true;
}

/// Products of 8 and 4 bits: what a GEMM has, and how numbers are scaled.
constexpr FeatureSpec kScaledGemmSpecs[] = {
    {.name = "scaling", .is_axis = true, .is_kind = true},
    {.name = "quantizes_a", .is_axis = true, .is_kind = true},
    {"log2_quantize_over_baseline"},
    PERFMODEL_GEMM_FEATURES,
};

/// If the kernel that quantises was measured together with the product, a product alone takes the
/// ratio of both.
bool fill_scaled_gemm(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                      FeatureRow& row) {
  const auto* g = std::get_if<GemmShape>(&work.shape);
  if (!g || std::min({g->batch, g->m, g->n, g->k}) < 1) return false;
  const Scaling scaling = work.dtype == DType::kFloat4 ? Scaling::kBlock : g->scaling;
  const bool is_layer = scaling != Scaling::kTensor &&
                        kernels::measured_quantize(work.dtype, scaling, gpu) != nullptr;
  if (is_layer && !g->quantizes_a) {
    GemmShape layer = *g;
    layer.quantizes_a = true;
    const KernelWork whole = gemm_work(layer, work.dtype, work.matrix_units);
    return fill_scaled_gemm(whole, gpu, KernelModels::heuristic().price(whole, gpu), row);
  }
  double quantize_us = 0;
  if (g->quantizes_a) {
    const KernelWork quantize = quantize_work(g->batch * g->m, g->k, work.dtype, scaling);
    quantize_us = kernels::quantize_model().price(quantize, gpu).time.count();
  }
  Writer out(row);
  out.add(static_cast<double>(scaling));
  out.add(g->quantizes_a ? 1 : 0);
  out.add_log2(std::max(quantize_us / baseline.time.count(), 1.0 / 64));
  add_gemm(out, *g, work, gpu, baseline);
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
  if (work.layout == Layout::kGenerated) return false;  // no model was fitted to such
  if (is_cast(work) && work.bytes_written.value != work.bytes_read.value) {
    return fill_stream(cast_of_tables(work), gpu, baseline, row);
  }
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
  if (r->is_channel) return false;  // no shared table has batch norms
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

constexpr FeatureSpec kEmbeddingSpecs[] = {
    {"log2_bags", true},
    {"log2_num_rows", true},
    {"log2_row_bytes", true},
    {"log2_pooling", true},
    {"zipf_exponent_times_4", true},  // a cell is half a unit wide
    {.name = "optimizer_state", .is_axis = true, .is_kind = true},
    {"log2_tables"},
    {"log2_lookups"},
    {"log2_lookups_per_row"},
    {"log2_tables_over_l2"},
    {"log2_table_over_l2"},
    {"log2_bags_over_in_flight"},
    {"align_dim"},
    {"log2_bytes_over_memory_term"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_embedding(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                    FeatureRow& row) {
  const auto* e = std::get_if<EmbeddingShape>(&work.shape);
  if (!e || e->batch < 1 || e->num_tables < 1 || !(e->num_rows >= 1) || !(e->dim > 0)) return false;
  if (!(e->pooling_factor > 0)) return false;
  Writer out(row);
  const auto tables = static_cast<double>(e->num_tables);
  const double bags = static_cast<double>(e->batch) * tables;
  const double row_bytes = e->dim * e->weight_bytes;
  const double table_bytes = e->num_rows * row_bytes;
  const double lookups = bags * e->pooling_factor;
  out.add_log2(bags);
  out.add_log2(e->num_rows);
  out.add_log2(row_bytes);
  out.add_log2(e->pooling_factor);
  out.add(4 * e->zipf_exponent);
  out.add(std::floor(std::log2(1 + e->optimizer_bytes_per_row)));
  out.add_log2(tables);
  out.add_log2(lookups);
  out.add_log2(lookups / tables / e->num_rows);
  out.add_log2(tables * table_bytes / gpu.l2_size.value, 64);
  out.add_log2(table_bytes / gpu.l2_size.value, 64);
  out.add_log2(bags * gpu.warp_size / (gpu.num_sms * std::max(1.0, 1.0 * gpu.max_threads_per_sm)),
               64);
  out.add(alignment(static_cast<std::int64_t>(e->dim)));
  // This feature carries the heuristic's cache hits and repeated rows.
  out.add_log2(work.bytes().value /
               std::max(1.0, baseline.memory.count() * terms::dram_bytes_per_us(gpu)));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kReductionSpecs[] = {
    {"log2_rows", true},
    {"log2_cols", true},
    {.name = "is_strided", .is_axis = true, .is_kind = true},
    {"log2_rows_per_sm"},
    {"filled_waves"},
    {"log2_bytes_per_sm"},
    {"align_rows"},
    {"align_cols"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

/// Rows over SMs, and the share of the last round of SMs that has one.
void add_waves(Writer& out, double rows, const Gpu& gpu) {
  const double waves = rows / gpu.num_sms;
  out.add_log2(waves, 1024);
  out.add(waves / std::ceil(waves));
}

bool fill_reduction(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                    FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  if (!r || r->rows < 1 || r->cols < 1) return false;
  Writer out(row);
  out.add_log2(static_cast<double>(r->rows));
  out.add_log2(static_cast<double>(r->cols));
  out.add(r->is_strided ? 1 : 0);
  add_waves(out, static_cast<double>(r->rows), gpu);
  out.add_log2(work.bytes().value / gpu.num_sms);
  out.add(alignment(r->rows));
  out.add(alignment(r->cols));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kCopySpecs[] = {
    {.name = "kind", .is_axis = true, .is_kind = true},
    {"log2_bytes", true},
    {"log2_run_bytes", true},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_copy(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* c = std::get_if<CopyShape>(&work.shape);
  if (!c) return false;
  const bool has_host_side =
      c->kind == CopyKind::kHostToDevice || c->kind == CopyKind::kDeviceToHost;
  Writer out(row);
  out.add(static_cast<double>(c->kind) + (has_host_side && c->pageable ? 4 : 0) +
          (c->run_bytes > 0 ? 8 : 0));
  out.add_log2(std::max(1.0, work.bytes_written.value));
  out.add_log2(static_cast<double>(std::max<std::int64_t>(1, c->run_bytes)));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

/// Sets, concatenations, dropout: every byte once.
constexpr FeatureSpec kMoveSpecs[] = {
    {"log2_bytes_per_sm", true},
    {.name = "reads_more_than_it_writes", .is_axis = true, .is_kind = true},
    {"read_share"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_move(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const double bytes = work.bytes().value;
  if (!(bytes > 0)) return false;
  Writer out(row);
  out.add_log2(bytes / gpu.num_sms);
  out.add(work.bytes_read.value > work.bytes_written.value ? 1 : 0);
  out.add(work.bytes_read.value / bytes);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kTransposeSpecs[] = {
    {"log2_batch"},
    {"log2_rows", true},
    {"log2_cols", true},
    {"log2_bytes_per_sm", true},
    {"align_rows"},
    {"align_cols"},
    {"filled_tiles"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_transpose(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                    FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  if (!r || r->batch < 1 || r->rows < r->batch || r->cols < 1) return false;
  constexpr std::int64_t kTile = 32;
  const std::int64_t rows = r->rows / r->batch;
  const auto padded = [](std::int64_t size) { return (size + kTile - 1) / kTile * kTile; };
  Writer out(row);
  out.add_log2(static_cast<double>(r->batch));
  out.add_log2(static_cast<double>(rows));
  out.add_log2(static_cast<double>(r->cols));
  out.add_log2(work.bytes().value / gpu.num_sms);
  out.add(alignment(rows));
  out.add(alignment(r->cols));
  out.add(static_cast<double>(rows * r->cols) /
          static_cast<double>(padded(rows) * padded(r->cols)));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kIndexSpecs[] = {
    {"log2_rows", true},          {"log2_cols", true},
    {"log2_table_over_l2", true}, {.name = "adds", .is_axis = true, .is_kind = true},
    {"log2_row_bytes"},           {"log2_bytes_per_sm"},
    {"log2_rows_per_table_row"},  {"align_cols"},
    PERFMODEL_BALANCE_FEATURES,   PERFMODEL_DEVICE_FEATURES,
};

bool fill_index(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  if (!r || r->rows < 1 || r->cols < 1) return false;
  const auto rows = static_cast<double>(r->rows);
  // Without a named table, each row counts as found once.
  const double table_rows = r->table_rows > 0 ? static_cast<double>(r->table_rows) : rows;
  const double row_bytes = work.bytes_written.value / rows;
  Writer out(row);
  out.add_log2(rows);
  out.add_log2(static_cast<double>(r->cols));
  out.add_log2(std::max(table_rows * row_bytes / gpu.l2_size.value, 1.0 / 64), 64);
  out.add(work.bytes_read.value > 1.75 * work.bytes_written.value && work.flop.value > 0 ? 1 : 0);
  out.add_log2(row_bytes);
  out.add_log2(work.bytes().value / gpu.num_sms);
  out.add_log2(rows / table_rows);
  out.add(alignment(r->cols));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kInteractionSpecs[] = {
    {"log2_batch", true},
    {"log2_pairs", true},
    {.name = "is_backward", .is_axis = true, .is_kind = true},
    {"log2_batch_per_sm"},
    {"filled_waves"},
    {"log2_bytes_per_sm"},
    {"align_pairs"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_interaction(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                      FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  if (!r || r->rows < 1 || r->cols < 1) return false;
  Writer out(row);
  out.add_log2(static_cast<double>(r->rows));
  out.add_log2(static_cast<double>(r->cols));
  out.add(work.bytes_written.value > work.bytes_read.value ? 1 : 0);
  add_waves(out, static_cast<double>(r->rows), gpu);
  out.add_log2(work.bytes().value / gpu.num_sms);
  out.add(alignment(r->cols));
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kAttentionSpecs[] = {
    {.name = "kernel", .is_axis = true, .is_kind = true},
    {"log2_seq_q", true},
    {"log2_seq_k", true},
    {"log2_batch_heads", true},
    {"log2_heads_per_kv_head", true},
    {"log2_head_dim", true},
    {"log2_batch"},
    {"is_causal"},
    {"log2_waves"},
    {"filled_waves"},
    {"filled_q"},
    {"filled_k"},
    {"filled_head"},
    {"log2_q_tiles"},
    {"log2_k_tiles"},
    {"log2_splits"},
    {"log2_tile_tokens"},
    {"log2_keys_over_l2"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

/// Forward passes of kernels whose tiles are known; the heuristic prices others alone. So it does
/// kernels of training except FlashAttention-2's: trees were fitted on servers' and on that one.
bool fill_attention(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                    FeatureRow& row) {
  const auto* a = std::get_if<AttentionShape>(&work.shape);
  if (!a || a->pass != AttentionShape::Pass::kForward) return false;
  if (std::min({a->batch, a->heads, a->seq_q, a->seq_k, a->head_dim}) < 1) return false;
  const auto blocks = kernels::attention_blocks(*a, work.matrix_units, gpu);
  if (!blocks || (blocks->in_training && blocks->kernel != AttentionGeneration::kFa2)) return false;
  const auto batch = static_cast<double>(a->batch), heads = static_cast<double>(a->heads);
  const double kv_heads = a->kv_heads > 0 ? static_cast<double>(a->kv_heads) : heads;
  const auto d = static_cast<double>(a->head_dim), keys = static_cast<double>(a->seq_k);
  Writer out(row);
  out.add(4 * static_cast<double>(blocks->kernel) + (blocks->paged ? 2 : 0) + (a->causal ? 1 : 0));
  out.add_log2(static_cast<double>(a->seq_q));
  out.add_log2(keys);
  out.add_log2(batch * heads, 4096);
  out.add_log2(heads / kv_heads);
  out.add_log2(d);
  out.add_log2(batch, 256);
  out.add(a->causal ? 1 : 0);
  out.add_log2(blocks->waves, 64);
  out.add(blocks->waves / std::ceil(blocks->waves));
  out.add(blocks->rows / (blocks->n_q * blocks->tile.q));
  out.add(keys / (blocks->n_k * blocks->tile.k));
  out.add(std::min(1.0, d / blocks->tile.head_dim));
  out.add_log2(blocks->n_q, 64);
  out.add_log2(blocks->n_k, 64);
  out.add_log2(blocks->splits);
  out.add_log2(blocks->tokens);
  out.add_log2(2 * batch * kv_heads * keys * d * size_in_bytes(work.dtype) / gpu.l2_size.value, 64);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kExpertsSpecs[] = {
    {.name = "kernel", .is_axis = true, .is_kind = true},
    {"log2_tokens", true},
    {.name = "log2_hidden", .is_axis = true, .is_range_only = true},
    {.name = "log2_inter", .is_axis = true, .is_range_only = true},
    {.name = "log2_experts", .is_axis = true, .is_range_only = true},
    {.name = "log2_topk", .is_axis = true, .is_range_only = true},
    {"log2_rows_per_expert"},
    {"log2_largest_over_mean"},
    {"touched_share"},
    {"is_more_tokens_than_experts"},
    {"log2_blocks_up"},
    {"log2_blocks_down"},
    {"filled_16"},
    {"filled_64"},
    {"filled_128"},
    {"log2_weights_over_l2"},
    {"log2_rows_over_l2"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

/// AMD's tuned kernels have too few rows for trees: the heuristic speaks alone.
bool fill_experts(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* x = std::get_if<ExpertsShape>(&work.shape);
  if (!x || x->kernel == ExpertsLibrary::kTuned) return false;
  if (std::min({x->tokens, x->hidden, x->inter, x->experts, x->topk}) < 1) return false;
  const ExpertLoad load = expert_load(*x);
  const auto tokens = static_cast<double>(x->tokens), experts = static_cast<double>(x->experts),
             hidden = static_cast<double>(x->hidden), inter = static_cast<double>(x->inter);
  const double rows = tokens * static_cast<double>(x->topk);
  const auto tiles_of = [&](double tile) {
    double tiles = 0;
    for (const LoadClass& c : load.classes) tiles += c.experts * std::ceil(c.rows / tile);
    return tiles;
  };
  double largest = 1;
  for (const LoadClass& c : load.classes) largest = std::max(largest, c.rows);
  Writer out(row);
  out.add(static_cast<double>(x->kernel));
  out.add_log2(tokens);
  out.add_log2(hidden);
  out.add_log2(inter);
  out.add_log2(experts);
  out.add_log2(static_cast<double>(x->topk));
  out.add_log2(rows / load.touched);
  out.add_log2(largest * load.touched / rows);
  out.add(load.touched / experts);
  out.add(x->tokens > x->experts ? 1 : 0);
  out.add_log2(tiles_of(64) * std::ceil(2 * inter / 128) / gpu.num_sms, 256);
  out.add_log2(tiles_of(64) * std::ceil(hidden / 128) / gpu.num_sms, 256);
  for (const double tile : {16.0, 64.0, 128.0}) out.add(rows / (tiles_of(tile) * tile));
  const double size = size_in_bytes(work.dtype);
  out.add_log2(3 * load.touched * hidden * inter * size / gpu.l2_size.value, 64);
  out.add_log2(rows * hidden * size / gpu.l2_size.value, 64);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kLinearAttentionSpecs[] = {
    {.name = "kernel", .is_axis = true, .is_kind = true},
    {"log2_seq", true},
    {"log2_batch", true},
    {"log2_k_heads", true},
    {"log2_v_heads", true},
    {"log2_tokens_per_sm"},
    {"log2_chunks"},
    {"filled_chunks"},
    {"log2_states_per_sm"},
    {"filled_states"},
    {"log2_channels_per_sm"},
    PERFMODEL_BALANCE_FEATURES,
    PERFMODEL_DEVICE_FEATURES,
};

/// Without a measured kernel only the heuristic counts, out of range.
bool fill_linear_attention(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                           FeatureRow& row) {
  const auto* l = std::get_if<LinearAttentionShape>(&work.shape);
  if (!l || std::min({l->batch, l->seq, l->k_heads, l->v_heads, l->k_dim, l->v_dim}) < 1) {
    return false;
  }
  const auto& rates = gpu.architecture.linear_attention;
  if (!rates || !rates->measured) return false;
  const auto batch = static_cast<double>(l->batch), seq = static_cast<double>(l->seq),
             v_heads = static_cast<double>(l->v_heads);
  const double chunks = std::ceil(seq / kLinearAttentionChunk);
  const double states = batch * v_heads / gpu.num_sms;
  Writer out(row);
  out.add(static_cast<double>(l->kernel));
  out.add_log2(seq);
  out.add_log2(batch);
  out.add_log2(static_cast<double>(l->k_heads));
  out.add_log2(v_heads);
  out.add_log2(batch * seq / gpu.num_sms, 4096);
  out.add_log2(chunks, 64);
  out.add(seq / (chunks * kLinearAttentionChunk));
  out.add_log2(states);
  out.add(states / std::ceil(states));
  out.add_log2(
      (2 * static_cast<double>(l->k_heads * l->k_dim) + v_heads * static_cast<double>(l->v_dim)) *
      batch / gpu.num_sms);
  add_balance(out, work, gpu, baseline);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec size_feature(std::string_view name, bool is_axis = false) {
  return {.name = name, .is_axis = is_axis, .monotone = 1};
}
constexpr FeatureSpec kind_feature(std::string_view name) {
  return {.name = name, .is_axis = true, .is_kind = true};
}

constexpr FeatureSpec kMonotoneGemmSpecs[] = {
    size_feature("log2_m", true),
    size_feature("log2_n", true),
    size_feature("log2_k", true),
    size_feature("log2_batch", true),
    size_feature("log2_results"),
    size_feature("log2_flop"),
    size_feature("log2_bytes"),
    {"align_a"},
    {"align_b"},
    {"align_c"},
    {"layout"},
    {"is_batched"},
    PERFMODEL_DEVICE_FEATURES,
};

/// Loads depend on the axis of an operand that is contiguous.
bool fill_monotone_gemm(const KernelWork& work, const Gpu& gpu, const Price&, FeatureRow& row) {
  const auto* g = std::get_if<GemmShape>(&work.shape);
  if (!g || std::min({g->batch, g->m, g->n, g->k}) < 1) return false;
  const auto batch = static_cast<double>(g->batch);
  Writer out(row);
  for (std::int64_t size : {g->m, g->n, g->k}) out.add_log2(static_cast<double>(size));
  out.add_log2(batch);
  out.add_log2(batch * static_cast<double>(g->m) * static_cast<double>(g->n));
  out.add_log2(work.flop.value);
  out.add_log2(work.bytes().value);
  out.add(alignment(g->a_transposed ? g->m : g->k));
  out.add(alignment(g->b_transposed ? g->k : g->n));
  out.add(alignment(g->n));
  out.add((g->a_transposed ? 1 : 0) + (g->b_transposed ? 2 : 0) + (g->has_bias ? 4 : 0));
  out.add(g->batch > 1 ? 1 : 0);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kMonotoneConvolutionSpecs[] = {
    kind_feature("pass_and_order"),
    size_feature("log2_batch", true),
    size_feature("log2_channels_in", true),
    size_feature("log2_channels_out", true),
    size_feature("log2_pixels", true),
    kind_feature("filter_height"),
    kind_feature("stride"),
    size_feature("log2_results"),
    size_feature("log2_flop"),
    size_feature("log2_bytes"),
    {"filter_width"},
    {"is_grouped"},
    {"align_channels_in"},
    {"align_channels_out"},
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_monotone_convolution(const KernelWork& work, const Gpu& gpu, const Price&,
                               FeatureRow& row) {
  const auto* c = std::get_if<ConvolutionShape>(&work.shape);
  if (!c || std::min({c->n, c->c, c->k, c->h, c->w, c->p, c->q, c->groups}) < 1) return false;
  const auto product = [](auto... sizes) { return (static_cast<double>(sizes) * ...); };
  Writer out(row);
  out.add(static_cast<double>(c->pass) + (c->channels_last ? 4 : 0));
  for (const double size : {product(c->n), product(c->c), product(c->k), product(c->h, c->w)}) {
    out.add_log2(size);
  }
  out.add(static_cast<double>(c->r));
  out.add(static_cast<double>(c->stride));
  out.add_log2(product(c->n, c->k, c->p, c->q));
  out.add_log2(work.flop.value);
  out.add_log2(work.bytes().value);
  out.add(static_cast<double>(c->s));
  out.add(c->groups > 1 ? 1 : 0);
  out.add(alignment(c->c / c->groups));
  out.add(alignment(c->k / c->groups));
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kMonotoneStreamSpecs[] = {
    size_feature("log2_bytes_per_sm", true),
    kind_feature("layout"),
    {"flop_per_result"},
    {"reads_per_write"},
    PERFMODEL_DEVICE_FEATURES,
};

bool fill_monotone_stream(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                          FeatureRow& row) {
  if (work.layout == Layout::kGenerated) return false;  // no model was fitted to such
  if (is_cast(work) && work.bytes_written.value != work.bytes_read.value) {
    return fill_monotone_stream(cast_of_tables(work), gpu, baseline, row);
  }
  const double bytes = work.bytes().value;
  if (!(bytes > 0)) return false;
  Writer out(row);
  out.add_log2(bytes / gpu.num_sms);
  out.add(static_cast<double>(work.layout));
  // Small inputs that are broadcast change neither, however many rows they meet.
  const double written = std::max(1.0, work.bytes_written.value);
  out.add(std::round(work.flop.value * size_in_bytes(work.dtype) / written));
  out.add(std::round(4 * work.bytes_read.value / written) / 4);
  add_device(out, work, gpu);
  return true;
}

constexpr FeatureSpec kMonotoneRowSpecs[] = {
    kind_feature("kernel"),
    size_feature("log2_rows", true),
    size_feature("log2_cols", true),
    size_feature("log2_bytes_per_sm"),
    {"align_cols"},
    PERFMODEL_DEVICE_FEATURES,
};

/// Softmax or log_softmax; layer norm, norm of mean squares, batch norm by library and image
/// layout; sums along rows or columns; each with its gradient.
double row_kernel(const RowShape& r, const KernelWork& work) {
  const int which = r.is_channel ? 3 + (r.is_cudnn ? 1 : 0) + (r.is_channels_last ? 2 : 0)
                    : r.is_rms   ? 2
                    : r.is_log || r.is_strided ? 1
                                               : 0;
  // Gradients read twice what results do: a tensor and its gradient.
  const double reads = work.bytes_read.value / std::max(1.0, work.bytes_written.value);
  const bool is_gradient =
      work.family != KernelFamily::kReduction && reads > (r.is_channel ? 3 : 1.5);
  return 2 * which + (is_gradient ? 1 : 0);
}

bool fill_monotone_rows(const KernelWork& work, const Gpu& gpu, const Price&, FeatureRow& row) {
  const auto* r = std::get_if<RowShape>(&work.shape);
  if (!r || r->rows < 1 || r->cols < 1) return false;
  // Moments alone and cuDNN's batch norm of inference are no row kernels (rows.cpp).
  if (work.family == KernelFamily::kNorm &&
      (work.bytes_written.value <= 0 || (r->is_cudnn && !r->is_channel))) {
    return false;
  }
  if (kernels::knows_batch_norm(work)) return false;  // nearer to the rows than trees are
  Writer out(row);
  out.add(row_kernel(*r, work));
  out.add_log2(static_cast<double>(r->rows));
  out.add_log2(static_cast<double>(r->cols));
  out.add_log2(work.bytes().value / gpu.num_sms);
  out.add(alignment(r->is_strided ? r->rows : r->cols));
  add_device(out, work, gpu);
  return true;
}

template <std::size_t kSize>
constexpr FeatureSet make_set(const FeatureSpec (&specs)[kSize],
                              bool (*fill)(const KernelWork&, const Gpu&, const Price&,
                                           FeatureRow&)) {
  static_assert(kSize < kMaxFeatures, "one more column holds the chip");
  return {specs, fill};
}

constexpr FeatureSet kGemm = make_set(kGemmSpecs, fill_gemm);
constexpr FeatureSet kScaledGemm = make_set(kScaledGemmSpecs, fill_scaled_gemm);
constexpr FeatureSet kConvolution = make_set(kConvolutionSpecs, fill_convolution);
constexpr FeatureSet kStream = make_set(kStreamSpecs, fill_stream);
constexpr FeatureSet kRows = make_set(kRowSpecs, fill_rows);
constexpr FeatureSet kEmbedding = make_set(kEmbeddingSpecs, fill_embedding);
constexpr FeatureSet kReduction = make_set(kReductionSpecs, fill_reduction);
constexpr FeatureSet kCopy = make_set(kCopySpecs, fill_copy);
constexpr FeatureSet kMove = make_set(kMoveSpecs, fill_move);
constexpr FeatureSet kTranspose = make_set(kTransposeSpecs, fill_transpose);
constexpr FeatureSet kIndex = make_set(kIndexSpecs, fill_index);
constexpr FeatureSet kAttention = make_set(kAttentionSpecs, fill_attention);
constexpr FeatureSet kExperts = make_set(kExpertsSpecs, fill_experts);
constexpr FeatureSet kLinearAttention = make_set(kLinearAttentionSpecs, fill_linear_attention);
constexpr FeatureSet kInteraction = make_set(kInteractionSpecs, fill_interaction);
constexpr FeatureSet kMonotoneGemm = make_set(kMonotoneGemmSpecs, fill_monotone_gemm);
constexpr FeatureSet kMonotoneConvolution =
    make_set(kMonotoneConvolutionSpecs, fill_monotone_convolution);
constexpr FeatureSet kMonotoneStream = make_set(kMonotoneStreamSpecs, fill_monotone_stream);
constexpr FeatureSet kMonotoneRows = make_set(kMonotoneRowSpecs, fill_monotone_rows);

}  // namespace

const FeatureSet* feature_set(KernelFamily family, DType dtype) {
  switch (family) {
    case KernelFamily::kGemm:
      return dtype == DType::kFloat8 || dtype == DType::kFloat4 ? &kScaledGemm : &kGemm;
    case KernelFamily::kConvolution:
      return &kConvolution;
    case KernelFamily::kElementwise:
      return &kStream;
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
      return &kRows;
    case KernelFamily::kEmbeddingForward:
    case KernelFamily::kEmbeddingBackward:
      return &kEmbedding;
    case KernelFamily::kReduction:
      return &kReduction;
    case KernelFamily::kCopy:
      return &kCopy;
    case KernelFamily::kSet:
    case KernelFamily::kConcat:
    case KernelFamily::kDropout:
      return &kMove;
    case KernelFamily::kTranspose:
      return &kTranspose;
    case KernelFamily::kIndex:
      return &kIndex;
    case KernelFamily::kInteraction:
      return &kInteraction;
    case KernelFamily::kAttention:
      return &kAttention;
    case KernelFamily::kExperts:
      return &kExperts;
    case KernelFamily::kLinearAttention:
      return &kLinearAttention;
    default:
      return nullptr;
  }
}

const FeatureSet* monotone_set(KernelFamily family, DType dtype) {
  switch (family) {
    case KernelFamily::kGemm:
      return dtype == DType::kFloat8 || dtype == DType::kFloat4 ? nullptr : &kMonotoneGemm;
    case KernelFamily::kConvolution:
      return &kMonotoneConvolution;
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout:
      return &kMonotoneStream;
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
    case KernelFamily::kReduction:
      return &kMonotoneRows;
    default:
      return nullptr;
  }
}

}  // namespace perfmodel::learned
