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

struct Query {
  const KernelWork& work;
  const Gpu& gpu;
  const Price& baseline;
};

float log2_of(double x) { return static_cast<float>(std::log2(std::max(x, 1e-9))); }

// Each family lists its features once, to one of these two: an empty shape gives the names.
class Names {
 public:
  static bool fits(bool) { return true; }
  void add(const FeatureSpec& spec, double) { specs_.push_back(spec); }
  void log2(const FeatureSpec& spec, double, double = 0) { specs_.push_back(spec); }
  const std::vector<FeatureSpec>& specs() const { return specs_; }

 private:
  std::vector<FeatureSpec> specs_;
};

class Values {
 public:
  explicit Values(FeatureRow& row) : row_(row) {}
  /// Whether the work has what the family's features need.
  static bool fits(bool does) { return does; }
  void add(const FeatureSpec&, double value) { row_[count_++] = static_cast<float>(value); }
  void log2(const FeatureSpec&, double value) { row_[count_++] = log2_of(value); }
  /// Sizes beyond `most` behave as `most` does: the GPU is full.
  void log2(const FeatureSpec& spec, double value, double most) {
    log2(spec, std::min(value, most));
  }

 private:
  FeatureRow& row_;
  std::size_t count_ = 0;
};

constexpr FeatureSpec axis(std::string_view name) { return {.name = name, .is_axis = true}; }
constexpr FeatureSpec kind(std::string_view name) {
  return {.name = name, .is_axis = true, .is_kind = true};
}
constexpr FeatureSpec range_only(std::string_view name) {
  return {.name = name, .is_axis = true, .is_range_only = true};
}
constexpr FeatureSpec size(std::string_view name) { return {.name = name, .monotone = 1}; }
constexpr FeatureSpec size_axis(std::string_view name) {
  return {.name = name, .is_axis = true, .monotone = 1};
}

double real(std::int64_t x) { return static_cast<double>(x); }

/// Powers of two in x up to 8: what vector loads and 32-byte sectors care about. (Larger powers are
/// rare in random sweeps and the rule in real models: trees must not tell them apart.)
double alignment(std::int64_t x) { return x % 8 == 0 ? 3 : x % 4 == 0 ? 2 : x % 2 == 0 ? 1 : 0; }

double lanes_per_sm(const Gpu& gpu) {
  return gpu.peak(DType::kFloat32, false).value /
         (2e6 * terms::clock_mhz(gpu) * static_cast<double>(gpu.num_sms));
}

/// The device, without absolute sizes: they do not extrapolate in trees.
void add_device(auto& out, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  const double peak = gpu.peak(work.dtype, work.matrix_units).value;
  out.log2({"log2_flop_per_byte_of_device"}, peak / gpu.dram_bandwidth.value);
  out.log2({"log2_dram_bytes_per_clock_per_sm"},
           gpu.dram_bandwidth.value / (1e6 * terms::clock_mhz(gpu) * gpu.num_sms));
  out.log2({"log2_l2_bytes_per_sm"}, gpu.l2_size.value / gpu.num_sms);
  out.add({"sustained_share_of_peak"},
          terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units) / (peak * 1e-6));
  out.log2({"log2_fp32_lanes_per_sm"}, lanes_per_sm(gpu));
  out.add({"is_amd"}, gpu.vendor == "amd" ? 1 : 0);
}

void add_balance_and_device(auto& out, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  const double balance = gpu.peak(work.dtype, work.matrix_units).value / gpu.dram_bandwidth.value;
  const double bytes = std::max(1.0, work.bytes().value);
  const double compute = baseline.compute.count(), time = baseline.time.count();
  out.log2({"log2_intensity_over_balance"}, std::max(work.flop.value, 1.0) / bytes / balance);
  out.log2({"log2_compute_over_memory"}, compute / std::max(1e-3, baseline.memory.count()));
  out.log2({"log2_baseline_us"}, time, 4096);
  out.log2({"log2_time_over_latency"}, time / std::max(0.1, baseline.latency.count()), 1024);
  out.log2({"log2_bytes_over_l2"}, bytes / gpu.l2_size.value, 64);
  add_device(out, q);
}

/// Work over SMs, and the share of the last round of SMs that has some.
void add_waves(auto& out, std::string_view name, double waves, double most) {
  out.log2({name}, waves, most);
  out.add({"filled_waves"}, waves / std::ceil(waves));
}

struct Tile {
  std::int64_t m, n;
  std::string_view waves, filled_waves, filled_tiles;
};
#define PERFMODEL_TILE(M, N) \
  Tile { M, N, "log2_waves_" #M "x" #N, "filled_waves_" #M "x" #N, "filled_tiles_" #M "x" #N }

/// Waves of a tile size: work per SM, share of the last wave that is filled, share of the tiles'
/// area that is result.
void add_tile(auto& out, double batch, std::int64_t m, std::int64_t n, const Tile& tile,
              const Gpu& gpu) {
  const double blocks_m = real((m + tile.m - 1) / tile.m);
  const double blocks_n = real((n + tile.n - 1) / tile.n);
  const double waves = batch * blocks_m * blocks_n / gpu.num_sms;
  out.log2({tile.waves}, waves, 32);
  out.add({tile.filled_waves}, waves / std::ceil(waves));
  out.add({tile.filled_tiles}, real(m) * real(n) / (blocks_m * blocks_n * real(tile.m * tile.n)));
}

bool add_gemm(auto& out, const GemmShape& g, const Query& q) {
  if (!out.fits(std::min({g.batch, g.m, g.n, g.k}) >= 1)) return false;
  out.log2(axis("log2_m"), real(g.m));
  out.log2(axis("log2_n"), real(g.n));
  out.log2(axis("log2_k"), real(g.k));
  out.log2(axis("log2_batch"), real(g.batch), 64);
  out.add({"align_m"}, alignment(g.m));
  out.add({"align_n"}, alignment(g.n));
  out.add({"align_k"}, alignment(g.k));
  out.add({"layout"}, (g.a_transposed ? 1 : 0) + (g.b_transposed ? 2 : 0) + (g.has_bias ? 4 : 0));
  for (const Tile& tile :
       {PERFMODEL_TILE(128, 128), PERFMODEL_TILE(128, 64), PERFMODEL_TILE(64, 128),
        PERFMODEL_TILE(64, 64), PERFMODEL_TILE(128, 32)}) {
    add_tile(out, real(g.batch), g.m, g.n, tile, q.gpu);
  }
  add_balance_and_device(out, q);
  return true;
}

Scaling scaling_of(const GemmShape& g, const KernelWork& work) {
  return work.dtype == DType::kFloat4 ? Scaling::kBlock : g.scaling;
}

/// Products of 8 and 4 bits: what a GEMM has, and how numbers are scaled.
bool add_scaled_gemm(auto& out, const GemmShape& g, const Query& q) {
  if (!out.fits(std::min({g.batch, g.m, g.n, g.k}) >= 1)) return false;
  const Scaling scaling = scaling_of(g, q.work);
  double quantize_us = 0;
  if (g.quantizes_a) {
    const KernelWork quantize = quantize_work(g.batch * g.m, g.k, q.work.dtype, scaling);
    quantize_us = kernels::quantize_model().price(quantize, q.gpu).time.count();
  }
  out.add(kind("scaling"), static_cast<double>(scaling));
  out.add(kind("quantizes_a"), g.quantizes_a ? 1 : 0);
  out.log2({"log2_quantize_over_baseline"},
           std::max(quantize_us / q.baseline.time.count(), 1.0 / 64));
  return add_gemm(out, g, q);
}

bool is_complete(const ConvolutionShape& c) {
  return std::min({c.n, c.c, c.k, c.h, c.w, c.p, c.q, c.groups}) >= 1;
}

bool add_convolution(auto& out, const ConvolutionShape& c, const Query& q,
                     const kernels::ConvolutionTimes& times) {
  const std::int64_t in = c.c / c.groups, filters = c.k / c.groups;
  out.add(kind("pass"), static_cast<double>(c.pass));
  out.log2(axis("log2_batch"), real(c.n));
  out.log2(axis("log2_channels_in"), real(in));
  out.log2(axis("log2_channels_out"), real(filters));
  out.log2(axis("log2_height"), real(c.h));
  out.log2({"log2_width"}, real(c.w));
  out.log2({"log2_results_per_image"}, real(c.p * c.q));
  out.add(kind("filter_height"), real(c.r));
  out.add({"filter_width"}, real(c.s));
  out.add(kind("stride"), real(c.stride));
  out.log2({"log2_groups"}, real(c.groups));
  out.add({"align_channels_in"}, alignment(in));
  out.add({"align_channels_out"}, alignment(filters));
  const auto filled = [&c](std::int64_t tile) {
    return real(c.p * c.q) /
           real((c.p + tile - 1) / tile * tile * ((c.q + tile - 1) / tile * tile));
  };
  out.add({"filled_winograd2_tiles"}, filled(2));
  out.add({"filled_winograd4_tiles"}, filled(4));
  constexpr double kMost = 16;  // also where the algorithm does not apply
  const double baseline_us = q.baseline.time.count();
  out.log2({"log2_fused_winograd_over_baseline"}, times.fused_winograd / baseline_us, kMost);
  out.log2({"log2_staged_winograd_over_baseline"}, times.staged_winograd / baseline_us, kMost);
  out.log2({"log2_winograd4_tiles"}, real(c.n * ((c.p + 3) / 4) * ((c.q + 3) / 4)));
  std::int64_t m = c.n * c.p * c.q, n = filters, k = in * c.r * c.s;
  if (c.pass == ConvolutionShape::Pass::kInputGradient) {
    m = c.n * c.h * c.w;
    n = in;
    k = filters * c.r * c.s;
  } else if (c.pass == ConvolutionShape::Pass::kWeightGradient) {
    m = filters;
    n = in * c.r * c.s;
    k = c.n * c.p * c.q;
  }
  out.log2({"log2_gemm_k"}, real(k));
  for (const Tile& tile :
       {PERFMODEL_TILE(128, 128), PERFMODEL_TILE(128, 64), PERFMODEL_TILE(128, 32)}) {
    add_tile(out, real(c.groups), m, n, tile, q.gpu);
  }
  add_balance_and_device(out, q);
  return true;
}

bool add_stream(auto& out, const KernelWork& work, const Query& q) {
  const double bytes = work.bytes().value;
  if (!out.fits(bytes > 0)) return false;
  out.log2(axis("log2_bytes_per_sm"), bytes / q.gpu.num_sms);
  out.add({"read_share"}, work.bytes_read.value / bytes);
  out.log2(axis("log2_flop_per_byte"), std::max(work.flop.value / bytes, 1.0 / 64));
  add_balance_and_device(out, q);
  return true;
}

bool add_rows(auto& out, const RowShape& r, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  const double bytes = work.bytes().value, rows = real(r.rows);
  // No shared table has batch norms.
  if (!out.fits(r.rows >= 1 && r.cols >= 1 && bytes > 0 && !r.is_channel)) return false;
  out.log2(axis("log2_rows"), rows, 65536);
  out.log2(axis("log2_cols"), real(r.cols));
  add_waves(out, "log2_rows_per_sm", rows / gpu.num_sms, 1024);
  const double in_flight =
      std::min(rows, gpu.num_sms * std::max(1.0, gpu.max_threads_per_sm / 1024.0));
  out.log2({"log2_rows_in_flight_over_l2"},
           in_flight * (work.bytes_written.value / rows) / gpu.l2_size.value);
  out.add({"align_cols"}, alignment(r.cols));
  out.add({"read_share"}, work.bytes_read.value / bytes);
  out.log2({"log2_flop_per_byte"}, std::max(work.flop.value / bytes, 1.0 / 64));
  add_balance_and_device(out, q);
  return true;
}

bool add_embedding(auto& out, const EmbeddingShape& e, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  if (!out.fits(e.batch >= 1 && e.num_tables >= 1 && e.num_rows >= 1 && e.dim > 0 &&
                e.pooling_factor > 0)) {
    return false;
  }
  const double tables = real(e.num_tables), bags = real(e.batch) * tables;
  const double row_bytes = e.dim * e.weight_bytes, table_bytes = e.num_rows * row_bytes;
  const double lookups = bags * e.pooling_factor;
  out.log2(axis("log2_bags"), bags);
  out.log2(axis("log2_num_rows"), e.num_rows);
  out.log2(axis("log2_row_bytes"), row_bytes);
  out.log2(axis("log2_pooling"), e.pooling_factor);
  out.add(axis("zipf_exponent_times_4"), 4 * e.zipf_exponent);  // a cell is half a unit wide
  out.add(kind("optimizer_state"), std::floor(std::log2(1 + e.optimizer_bytes_per_row)));
  out.log2({"log2_tables"}, tables);
  out.log2({"log2_lookups"}, lookups);
  out.log2({"log2_lookups_per_row"}, lookups / tables / e.num_rows);
  out.log2({"log2_tables_over_l2"}, tables * table_bytes / gpu.l2_size.value, 64);
  out.log2({"log2_table_over_l2"}, table_bytes / gpu.l2_size.value, 64);
  const double threads = gpu.num_sms * std::max(1.0, 1.0 * gpu.max_threads_per_sm);
  out.log2({"log2_bags_over_in_flight"}, bags * gpu.warp_size / threads, 64);
  out.add({"align_dim"}, alignment(static_cast<std::int64_t>(e.dim)));
  // This feature carries the heuristic's cache hits and repeated rows.
  out.log2(
      {"log2_bytes_over_memory_term"},
      work.bytes().value / std::max(1.0, baseline.memory.count() * terms::dram_bytes_per_us(gpu)));
  add_balance_and_device(out, q);
  return true;
}

bool add_reduction(auto& out, const RowShape& r, const Query& q) {
  if (!out.fits(r.rows >= 1 && r.cols >= 1)) return false;
  out.log2(axis("log2_rows"), real(r.rows));
  out.log2(axis("log2_cols"), real(r.cols));
  out.add(kind("is_strided"), r.is_strided ? 1 : 0);
  add_waves(out, "log2_rows_per_sm", real(r.rows) / q.gpu.num_sms, 1024);
  out.log2({"log2_bytes_per_sm"}, q.work.bytes().value / q.gpu.num_sms);
  out.add({"align_rows"}, alignment(r.rows));
  out.add({"align_cols"}, alignment(r.cols));
  add_balance_and_device(out, q);
  return true;
}

bool add_copy(auto& out, const CopyShape& c, const Query& q) {
  const bool has_host_side = c.kind == CopyKind::kHostToDevice || c.kind == CopyKind::kDeviceToHost;
  out.add(kind("kind"), static_cast<double>(c.kind) + (has_host_side && c.pageable ? 4 : 0) +
                            (c.run_bytes > 0 ? 8 : 0));
  out.log2(axis("log2_bytes"), std::max(1.0, q.work.bytes_written.value));
  out.log2(axis("log2_run_bytes"), real(std::max<std::int64_t>(1, c.run_bytes)));
  add_balance_and_device(out, q);
  return true;
}

/// Sets, concatenations, dropout: every byte once.
bool add_move(auto& out, const KernelWork& work, const Query& q) {
  const double bytes = work.bytes().value;
  if (!out.fits(bytes > 0)) return false;
  out.log2(axis("log2_bytes_per_sm"), bytes / q.gpu.num_sms);
  out.add(kind("reads_more_than_it_writes"),
          work.bytes_read.value > work.bytes_written.value ? 1 : 0);
  out.add({"read_share"}, work.bytes_read.value / bytes);
  add_balance_and_device(out, q);
  return true;
}

bool add_transpose(auto& out, const RowShape& r, const Query& q) {
  if (!out.fits(r.batch >= 1 && r.rows >= r.batch && r.cols >= 1)) return false;
  constexpr std::int64_t kTile = 32;
  const std::int64_t rows = r.rows / r.batch;
  const auto padded = [](std::int64_t n) { return (n + kTile - 1) / kTile * kTile; };
  out.log2({"log2_batch"}, real(r.batch));
  out.log2(axis("log2_rows"), real(rows));
  out.log2(axis("log2_cols"), real(r.cols));
  out.log2(axis("log2_bytes_per_sm"), q.work.bytes().value / q.gpu.num_sms);
  out.add({"align_rows"}, alignment(rows));
  out.add({"align_cols"}, alignment(r.cols));
  out.add({"filled_tiles"}, real(rows * r.cols) / real(padded(rows) * padded(r.cols)));
  add_balance_and_device(out, q);
  return true;
}

bool add_index(auto& out, const RowShape& r, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  if (!out.fits(r.rows >= 1 && r.cols >= 1)) return false;
  const double rows = real(r.rows);
  // Without a named table, each row counts as found once.
  const double table_rows = r.table_rows > 0 ? real(r.table_rows) : rows;
  const double row_bytes = work.bytes_written.value / rows;
  const bool adds = work.bytes_read.value > 1.75 * work.bytes_written.value && work.flop.value > 0;
  out.log2(axis("log2_rows"), rows);
  out.log2(axis("log2_cols"), real(r.cols));
  out.log2(axis("log2_table_over_l2"),
           std::max(table_rows * row_bytes / gpu.l2_size.value, 1.0 / 64), 64);
  out.add(kind("adds"), adds ? 1 : 0);
  out.log2({"log2_row_bytes"}, row_bytes);
  out.log2({"log2_bytes_per_sm"}, work.bytes().value / gpu.num_sms);
  out.log2({"log2_rows_per_table_row"}, rows / table_rows);
  out.add({"align_cols"}, alignment(r.cols));
  add_balance_and_device(out, q);
  return true;
}

bool add_interaction(auto& out, const RowShape& r, const Query& q) {
  const auto& [work, gpu, baseline] = q;
  if (!out.fits(r.rows >= 1 && r.cols >= 1)) return false;
  out.log2(axis("log2_batch"), real(r.rows));
  out.log2(axis("log2_pairs"), real(r.cols));
  out.add(kind("is_backward"), work.bytes_written.value > work.bytes_read.value ? 1 : 0);
  add_waves(out, "log2_batch_per_sm", real(r.rows) / gpu.num_sms, 1024);
  out.log2({"log2_bytes_per_sm"}, work.bytes().value / gpu.num_sms);
  out.add({"align_pairs"}, alignment(r.cols));
  add_balance_and_device(out, q);
  return true;
}

bool add_attention(auto& out, const AttentionShape& a, const Query& q,
                   const kernels::AttentionBlocks& blocks) {
  const auto& [work, gpu, baseline] = q;
  const double batch = real(a.batch), heads = real(a.heads);
  const double kv_heads = a.kv_heads > 0 ? real(a.kv_heads) : heads;
  const double d = real(a.head_dim), keys = real(a.seq_k);
  out.add(kind("kernel"),
          4 * static_cast<double>(blocks.kernel) + (blocks.paged ? 2 : 0) + (a.causal ? 1 : 0));
  out.log2(axis("log2_seq_q"), real(a.seq_q));
  out.log2(axis("log2_seq_k"), keys);
  out.log2(axis("log2_batch_heads"), batch * heads, 4096);
  out.log2(axis("log2_heads_per_kv_head"), heads / kv_heads);
  out.log2(axis("log2_head_dim"), d);
  out.log2({"log2_batch"}, batch, 256);
  out.add({"is_causal"}, a.causal ? 1 : 0);
  add_waves(out, "log2_waves", blocks.waves, 64);
  out.add({"filled_q"}, blocks.rows / (blocks.n_q * blocks.tile.q));
  out.add({"filled_k"}, keys / (blocks.n_k * blocks.tile.k));
  out.add({"filled_head"}, std::min(1.0, d / blocks.tile.head_dim));
  out.log2({"log2_q_tiles"}, blocks.n_q, 64);
  out.log2({"log2_k_tiles"}, blocks.n_k, 64);
  out.log2({"log2_splits"}, blocks.splits);
  out.log2({"log2_tile_tokens"}, blocks.tokens);
  const double key_bytes = 2 * batch * kv_heads * keys * d * size_in_bytes(work.dtype);
  out.log2({"log2_keys_over_l2"}, key_bytes / gpu.l2_size.value, 64);
  add_balance_and_device(out, q);
  return true;
}

bool add_experts(auto& out, const ExpertsShape& x, const Query& q, const ExpertLoad& load) {
  const Gpu& gpu = q.gpu;
  const double tokens = real(x.tokens), experts = real(x.experts), hidden = real(x.hidden),
               inter = real(x.inter), rows = tokens * real(x.topk);
  const auto tiles_of = [&](double tile) {
    double tiles = 0;
    for (const LoadClass& c : load.classes) tiles += c.experts * std::ceil(c.rows / tile);
    return tiles;
  };
  double largest = 1;
  for (const LoadClass& c : load.classes) largest = std::max(largest, c.rows);
  out.add(kind("kernel"), static_cast<double>(x.kernel));
  out.log2(axis("log2_tokens"), tokens);
  out.log2(range_only("log2_hidden"), hidden);
  out.log2(range_only("log2_inter"), inter);
  out.log2(range_only("log2_experts"), experts);
  out.log2(range_only("log2_topk"), real(x.topk));
  out.log2({"log2_rows_per_expert"}, rows / load.touched);
  out.log2({"log2_largest_over_mean"}, largest * load.touched / rows);
  out.add({"touched_share"}, load.touched / experts);
  out.add({"is_more_tokens_than_experts"}, x.tokens > x.experts ? 1 : 0);
  out.log2({"log2_blocks_up"}, tiles_of(64) * std::ceil(2 * inter / 128) / gpu.num_sms, 256);
  out.log2({"log2_blocks_down"}, tiles_of(64) * std::ceil(hidden / 128) / gpu.num_sms, 256);
  out.add({"filled_16"}, rows / (tiles_of(16) * 16));
  out.add({"filled_64"}, rows / (tiles_of(64) * 64));
  out.add({"filled_128"}, rows / (tiles_of(128) * 128));
  const double bytes = size_in_bytes(q.work.dtype);
  out.log2({"log2_weights_over_l2"}, 3 * load.touched * hidden * inter * bytes / gpu.l2_size.value,
           64);
  out.log2({"log2_rows_over_l2"}, rows * hidden * bytes / gpu.l2_size.value, 64);
  add_balance_and_device(out, q);
  return true;
}

bool add_linear_attention(auto& out, const LinearAttentionShape& l, const Query& q) {
  if (!out.fits(std::min({l.batch, l.seq, l.k_heads, l.v_heads, l.k_dim, l.v_dim}) >= 1)) {
    return false;
  }
  // Without a measured kernel only the heuristic counts, out of range.
  const auto& rates = q.gpu.architecture.linear_attention;
  if (!out.fits(rates && rates->measured)) return false;
  const double batch = real(l.batch), seq = real(l.seq), v_heads = real(l.v_heads);
  const double chunks = std::ceil(seq / kLinearAttentionChunk);
  const double states = batch * v_heads / q.gpu.num_sms;
  out.add(kind("kernel"), static_cast<double>(l.kernel));
  out.log2(axis("log2_seq"), seq);
  out.log2(axis("log2_batch"), batch);
  out.log2(axis("log2_k_heads"), real(l.k_heads));
  out.log2(axis("log2_v_heads"), v_heads);
  out.log2({"log2_tokens_per_sm"}, batch * seq / q.gpu.num_sms, 4096);
  out.log2({"log2_chunks"}, chunks, 64);
  out.add({"filled_chunks"}, seq / (chunks * kLinearAttentionChunk));
  out.log2({"log2_states_per_sm"}, states);
  out.add({"filled_states"}, states / std::ceil(states));
  out.log2({"log2_channels_per_sm"},
           (2 * real(l.k_heads * l.k_dim) + v_heads * real(l.v_dim)) * batch / q.gpu.num_sms);
  add_balance_and_device(out, q);
  return true;
}

/// Loads depend on the axis of an operand that is contiguous.
bool add_monotone_gemm(auto& out, const GemmShape& g, const Query& q) {
  if (!out.fits(std::min({g.batch, g.m, g.n, g.k}) >= 1)) return false;
  const double batch = real(g.batch);
  out.log2(size_axis("log2_m"), real(g.m));
  out.log2(size_axis("log2_n"), real(g.n));
  out.log2(size_axis("log2_k"), real(g.k));
  out.log2(size_axis("log2_batch"), batch);
  out.log2(size("log2_results"), batch * real(g.m) * real(g.n));
  out.log2(size("log2_flop"), q.work.flop.value);
  out.log2(size("log2_bytes"), q.work.bytes().value);
  out.add({"align_a"}, alignment(g.a_transposed ? g.m : g.k));
  out.add({"align_b"}, alignment(g.b_transposed ? g.k : g.n));
  out.add({"align_c"}, alignment(g.n));
  out.add({"layout"}, (g.a_transposed ? 1 : 0) + (g.b_transposed ? 2 : 0) + (g.has_bias ? 4 : 0));
  out.add({"is_batched"}, g.batch > 1 ? 1 : 0);
  add_device(out, q);
  return true;
}

bool add_monotone_convolution(auto& out, const ConvolutionShape& c, const Query& q) {
  if (!out.fits(is_complete(c))) return false;
  const auto product = [](auto... sizes) { return (static_cast<double>(sizes) * ...); };
  out.add(kind("pass_and_order"), static_cast<double>(c.pass) + (c.channels_last ? 4 : 0));
  out.log2(size_axis("log2_batch"), real(c.n));
  out.log2(size_axis("log2_channels_in"), real(c.c));
  out.log2(size_axis("log2_channels_out"), real(c.k));
  out.log2(size_axis("log2_pixels"), product(c.h, c.w));
  out.add(kind("filter_height"), real(c.r));
  out.add(kind("stride"), real(c.stride));
  out.log2(size("log2_results"), product(c.n, c.k, c.p, c.q));
  out.log2(size("log2_flop"), q.work.flop.value);
  out.log2(size("log2_bytes"), q.work.bytes().value);
  out.add({"filter_width"}, real(c.s));
  out.add({"is_grouped"}, c.groups > 1 ? 1 : 0);
  out.add({"align_channels_in"}, alignment(c.c / c.groups));
  out.add({"align_channels_out"}, alignment(c.k / c.groups));
  add_device(out, q);
  return true;
}

bool add_monotone_stream(auto& out, const KernelWork& work, const Query& q) {
  const double bytes = work.bytes().value;
  if (!out.fits(bytes > 0)) return false;
  out.log2(size_axis("log2_bytes_per_sm"), bytes / q.gpu.num_sms);
  out.add(kind("layout"), static_cast<double>(work.layout));
  // Small inputs that are broadcast change neither, however many rows they meet.
  const double written = std::max(1.0, work.bytes_written.value);
  out.add({"flop_per_result"}, std::round(work.flop.value * size_in_bytes(work.dtype) / written));
  out.add({"reads_per_write"}, std::round(4 * work.bytes_read.value / written) / 4);
  add_device(out, q);
  return true;
}

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

bool add_monotone_rows(auto& out, const RowShape& r, const Query& q) {
  const KernelWork& work = q.work;
  if (!out.fits(r.rows >= 1 && r.cols >= 1)) return false;
  // Moments alone and cuDNN's batch norm of inference are no row kernels (rows.cpp).
  const bool is_other = work.family == KernelFamily::kNorm &&
                        (work.bytes_written.value <= 0 || (r.is_cudnn && !r.is_channel));
  // Batch norms' own model is nearer to their rows than trees are.
  if (!out.fits(!is_other && !kernels::knows_batch_norm(work))) return false;
  out.add(kind("kernel"), row_kernel(r, work));
  out.log2(size_axis("log2_rows"), real(r.rows));
  out.log2(size_axis("log2_cols"), real(r.cols));
  out.log2(size("log2_bytes_per_sm"), work.bytes().value / q.gpu.num_sms);
  out.add({"align_cols"}, alignment(r.is_strided ? r.rows : r.cols));
  add_device(out, q);
  return true;
}

template <class List>
std::vector<FeatureSpec> names_of(const List& list) {
  Names names;
  list(names, Query{KernelWork{}, Gpu{}, Price{}});
  PERFMODEL_CHECK(names.specs().size() < kMaxFeatures);  // one more column holds the chip
  return names.specs();
}

template <class Shape>
const Shape* shape_of(const KernelWork& work) {
  return std::get_if<Shape>(&work.shape);
}
template <>
const KernelWork* shape_of(const KernelWork& work) {
  return &work;
}

/// Features that follow from the shape; from the work itself if Shape is KernelWork.
template <class Shape, class List>
FeatureSet set_of(List) {
  return {names_of([](Names& out, const Query& q) { return List{}(out, Shape{}, q); }),
          [](const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
            const auto* shape = shape_of<Shape>(work);
            Values out(row);
            return shape && List{}(out, *shape, Query{work, gpu, baseline});
          }};
}
#define PERFMODEL_SET(SHAPE, ADD) \
  set_of<SHAPE>([](auto& out, const SHAPE& shape, const Query& q) { return ADD(out, shape, q); })

/// If the kernel that quantises was measured together with the product, a product alone takes the
/// ratio of both.
bool fill_scaled_gemm(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                      FeatureRow& row) {
  const auto* g = std::get_if<GemmShape>(&work.shape);
  if (!g || std::min({g->batch, g->m, g->n, g->k}) < 1) return false;
  const Scaling scaling = scaling_of(*g, work);
  const bool is_layer = scaling != Scaling::kTensor &&
                        kernels::measured_quantize(work.dtype, scaling, gpu) != nullptr;
  Values out(row);
  if (!is_layer || g->quantizes_a) return add_scaled_gemm(out, *g, {work, gpu, baseline});
  GemmShape layer = *g;
  layer.quantizes_a = true;
  const KernelWork whole = gemm_work(layer, work.dtype, work.matrix_units);
  return add_scaled_gemm(out, layer, {whole, gpu, KernelModels::heuristic().price(whole, gpu)});
}

bool fill_convolution(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                      FeatureRow& row) {
  const auto* c = std::get_if<ConvolutionShape>(&work.shape);
  if (!c || !is_complete(*c)) return false;
  Values out(row);
  return add_convolution(out, *c, {work, gpu, baseline},
                         kernels::convolution_times(*c, work.bytes().value, gpu));
}

/// Casts count as tables name them. No model was fitted to generated kernels.
template <class List>
FeatureSet stream_set(List) {
  return {names_of([](Names& out, const Query& q) { return List{}(out, q.work, q); }),
          [](const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
            if (work.layout == Layout::kGenerated) return false;
            const bool casts = is_cast(work) && work.bytes_written.value != work.bytes_read.value;
            const KernelWork counted = casts ? cast_of_tables(work) : work;
            Values out(row);
            return List{}(out, counted, Query{counted, gpu, baseline});
          }};
}

/// Forward passes of kernels whose tiles are known; the heuristic prices others alone. So it does
/// kernels of training except FlashAttention-2's: trees were fitted on servers' and on that one.
bool fill_attention(const KernelWork& work, const Gpu& gpu, const Price& baseline,
                    FeatureRow& row) {
  const auto* a = std::get_if<AttentionShape>(&work.shape);
  if (!a || a->pass != AttentionShape::Pass::kForward) return false;
  if (std::min({a->batch, a->heads, a->seq_q, a->seq_k, a->head_dim}) < 1) return false;
  const auto blocks = kernels::attention_blocks(*a, work.matrix_units, gpu);
  if (!blocks || (blocks->in_training && blocks->kernel != AttentionGeneration::kFa2)) return false;
  Values out(row);
  return add_attention(out, *a, {work, gpu, baseline}, *blocks);
}

/// AMD's tuned kernels have too few rows for trees: the heuristic speaks alone.
bool fill_experts(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row) {
  const auto* x = std::get_if<ExpertsShape>(&work.shape);
  if (!x || x->kernel == ExpertsLibrary::kTuned) return false;
  if (std::min({x->tokens, x->hidden, x->inter, x->experts, x->topk}) < 1) return false;
  Values out(row);
  return add_experts(out, *x, {work, gpu, baseline}, expert_load(*x));
}

struct Sets {
  FeatureSet gemm = PERFMODEL_SET(GemmShape, add_gemm);
  FeatureSet scaled_gemm = {
      names_of([](Names& out, const Query& q) { return add_scaled_gemm(out, {}, q); }),
      fill_scaled_gemm};
  FeatureSet convolution = {
      names_of([](Names& out, const Query& q) { return add_convolution(out, {}, q, {}); }),
      fill_convolution};
  FeatureSet stream = stream_set(
      [](auto& out, const KernelWork& work, const Query& q) { return add_stream(out, work, q); });
  FeatureSet rows = PERFMODEL_SET(RowShape, add_rows);
  FeatureSet embedding = PERFMODEL_SET(EmbeddingShape, add_embedding);
  FeatureSet reduction = PERFMODEL_SET(RowShape, add_reduction);
  FeatureSet copy = PERFMODEL_SET(CopyShape, add_copy);
  FeatureSet move = PERFMODEL_SET(KernelWork, add_move);
  FeatureSet transpose = PERFMODEL_SET(RowShape, add_transpose);
  FeatureSet index = PERFMODEL_SET(RowShape, add_index);
  FeatureSet interaction = PERFMODEL_SET(RowShape, add_interaction);
  FeatureSet attention = {
      names_of([](Names& out, const Query& q) { return add_attention(out, {}, q, {}); }),
      fill_attention};
  FeatureSet experts = {
      names_of([](Names& out, const Query& q) { return add_experts(out, {}, q, {}); }),
      fill_experts};
  FeatureSet linear_attention = PERFMODEL_SET(LinearAttentionShape, add_linear_attention);
  FeatureSet monotone_gemm = PERFMODEL_SET(GemmShape, add_monotone_gemm);
  FeatureSet monotone_convolution = PERFMODEL_SET(ConvolutionShape, add_monotone_convolution);
  FeatureSet monotone_stream = stream_set([](auto& out, const KernelWork& work, const Query& q) {
    return add_monotone_stream(out, work, q);
  });
  FeatureSet monotone_rows = PERFMODEL_SET(RowShape, add_monotone_rows);
};
#undef PERFMODEL_SET
#undef PERFMODEL_TILE

const Sets& sets() {
  static const Sets made;
  return made;
}

}  // namespace

const FeatureSet* feature_set(KernelFamily family, DType dtype) {
  switch (family) {
    case KernelFamily::kGemm:
      return dtype == DType::kFloat8 || dtype == DType::kFloat4 ? &sets().scaled_gemm
                                                                : &sets().gemm;
    case KernelFamily::kConvolution: return &sets().convolution;
    case KernelFamily::kElementwise: return &sets().stream;
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm: return &sets().rows;
    case KernelFamily::kEmbeddingForward:
    case KernelFamily::kEmbeddingBackward: return &sets().embedding;
    case KernelFamily::kReduction: return &sets().reduction;
    case KernelFamily::kCopy: return &sets().copy;
    case KernelFamily::kSet:
    case KernelFamily::kConcat:
    case KernelFamily::kDropout: return &sets().move;
    case KernelFamily::kTranspose: return &sets().transpose;
    case KernelFamily::kIndex: return &sets().index;
    case KernelFamily::kInteraction: return &sets().interaction;
    case KernelFamily::kAttention: return &sets().attention;
    case KernelFamily::kExperts: return &sets().experts;
    case KernelFamily::kLinearAttention: return &sets().linear_attention;
    default: return nullptr;
  }
}

const FeatureSet* monotone_set(KernelFamily family, DType dtype) {
  switch (family) {
    case KernelFamily::kGemm:
      return dtype == DType::kFloat8 || dtype == DType::kFloat4 ? nullptr : &sets().monotone_gemm;
    case KernelFamily::kConvolution: return &sets().monotone_convolution;
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout: return &sets().monotone_stream;
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
    case KernelFamily::kReduction: return &sets().monotone_rows;
    default: return nullptr;
  }
}

}  // namespace perfmodel::learned
