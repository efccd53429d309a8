#include <algorithm>
#include <cmath>

#include "models.hpp"
#include "price/expert_load.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Share of a partly filled last wave's idle part that counts, as in `matrix_gemm`.
constexpr double kGroupedTail = 0.3;
/// Bytes of results that an SM stores per clock: plain products (docs/kernel_models.md) have 7 to
/// 39, by architecture; grouped ones were fitted with one figure.
constexpr double kGroupedStoreBytes = 20;

struct GroupedTime {
  double compute = 0, memory = 0;
  double total() const { return std::cbrt(compute * compute * compute + memory * memory * memory); }
};

/// The common inputs of a layer's products.
struct GroupedCall {
  const ExpertsKernel& kernel;
  const ExpertLoad& load;
  DType dtype;
  double rows, weight_bytes;  ///< all groups' rows, all their matrices' bytes
  bool few_tokens;
  const Gpu& gpu;
};

/// Bytes that are read once; of a GPU whose one L2 is large, weights are still there in part.
double weights_time(const GroupedCall& call, double bytes, double l2_rate) {
  const double dram_rate = call.kernel.dram_share * call.gpu.dram_bandwidth.value * 1e-6;
  if (call.kernel.reuse_distance <= 0) return bytes / dram_rate;
  const double cache = terms::cache_bytes(call.gpu);
  const double hit = std::clamp(
      (2 * cache - call.kernel.reuse_distance * call.weight_bytes) / (1.5 * cache), 0.0, 1.0);
  return bytes * (hit / std::max(l2_rate, dram_rate) + (1 - hit) / dram_rate);
}

/// Products of rows [rows, k] with a matrix [k, n] per group; L the rows of a group, s bytes per
/// element:
///
///   blocks  = sum over groups of ceil(L / tm) x ceil(n / tn);  w = blocks / SMs
///   waves   = 1 if w <= 1, else w + 0.3 (ceil(w) - w)
///   compute = waves (2 tm tn k / (e P / SMs) + 2 tm tn / B_store)
///   memory  = max(bytes / B_DRAM, waves (tm + tn) k s / B_L2 of an SM)
///   t       = (compute^3 + memory^3)^(1/3), the least over the tiles
GroupedTime grouped_time(const GroupedCall& call, double n, double k) {
  const Gpu& gpu = call.gpu;
  const double sms = static_cast<double>(gpu.num_sms), clock = terms::clock_mhz(gpu);
  const double flop_rate = gpu.peak(call.dtype, true).value * 1e-6 / sms;
  const double l2_rate = call.kernel.l2_bytes_per_clock_per_sm * clock;
  const double size = size_in_bytes(call.dtype);
  const double dram = weights_time(
      call, (call.load.touched * n * k + call.rows * k) * size + 2 * call.rows * n, l2_rate * sms);
  const auto of_tile = [&](const GemmTile& tile) {
    const double tile_m = static_cast<double>(std::int64_t{1} << tile.log2_m),
                 tile_n = static_cast<double>(std::int64_t{1} << tile.log2_n);
    double blocks = 0;
    for (const LoadClass& c : call.load.classes) blocks += c.experts * std::ceil(c.rows / tile_m);
    const double filled = blocks * std::ceil(n / tile_n) / sms;
    const double waves = filled <= 1 ? 1 : filled + kGroupedTail * (std::ceil(filled) - filled);
    return GroupedTime{.compute = waves * (2 * tile_m * tile_n * k / (flop_rate * tile.efficiency) +
                                           2 * tile_m * tile_n / (kGroupedStoreBytes * clock)),
                       .memory = std::max(dram, waves * (tile_m + tile_n) * k * size / l2_rate)};
  };
  const std::vector<GemmTile>& tiles = call.kernel.tiles;
  if (call.kernel.tile_by_tokens) return of_tile(call.few_tokens ? tiles.front() : tiles.back());
  GroupedTime best = of_tile(tiles.front());
  for (const GemmTile& tile : tiles) {
    const GroupedTime time = of_tile(tile);
    if (time.total() < best.total()) best = time;
  }
  return best;
}

Price assemble(const GroupedTime& products, double vectors, double latency,
               std::string_view model) {
  Price price;
  price.compute = Microseconds{products.compute};
  price.memory = Microseconds{products.memory + vectors};
  price.latency = Microseconds{latency};
  price.time = Microseconds{products.total() + vectors + latency};
  price.bound = price.latency >= std::max(price.compute, price.memory) ? Bound::kLatency
                : price.compute >= price.memory                        ? Bound::kCompute
                                                                       : Bound::kMemory;
  price.model = model;
  return price;
}

/// The price of unknown kernels: a share of the peaks.
Price unknown_price(const KernelWork& work, const Gpu& gpu, std::string_view model) {
  const double rate = 0.5 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
  Price price =
      terms::make_price(work.flop.value / rate, work.bytes().value / terms::dram_bytes_per_us(gpu),
                        terms::empty_kernel_us(gpu), model, 0.6);
  price.in_range = false;
  return price;
}

const ExpertsKernel* find_kernel(const Architecture& architecture, ExpertsLibrary name) {
  const auto found = std::ranges::find(architecture.experts_kernels, name, &ExpertsKernel::name);
  return found == architecture.experts_kernels.end() ? nullptr : &*found;
}

/// A layer's experts:
///
///   t = t_launch + t_expert touched + t(rows x 2 I, k = H) + t(rows x H, k = I) + t_stream(bytes)
///
/// `rows` = tokens x topk, I and H the sizes of an expert, gate and up one product. `bytes`, of 16
/// bits each: SiLU and product read 2 I and write I per row, the weighted sum reads H per row and
/// writes H per token; where rows are sorted first, H once more of both.
Price layer_price(const ExpertsKernel& kernel, const ExpertsShape& s, const KernelWork& work,
                  const Gpu& gpu) {
  const double hidden = static_cast<double>(s.hidden), inter = static_cast<double>(s.inter),
               tokens = static_cast<double>(s.tokens);
  const ExpertLoad load = expert_load(s);
  const GroupedCall call{
      .kernel = kernel,
      .load = load,
      .dtype = work.dtype,
      .rows = tokens * static_cast<double>(s.topk),
      .weight_bytes = 3 * load.touched * hidden * inter * size_in_bytes(work.dtype),
      .few_tokens = s.tokens <= s.experts,
      .gpu = gpu};
  const GroupedTime up = grouped_time(call, 2 * inter, hidden);
  const GroupedTime down = grouped_time(call, hidden, inter);
  const double moved =
      2 * (3 * call.rows * inter + (kernel.permutes ? 2 : 1) * (call.rows + tokens) * hidden);
  Price price = assemble({up.compute + down.compute, up.memory + down.memory},
                         terms::stream_time(gpu, moved, kernel.vector_share),
                         kernel.launch_us + kernel.expert_us * load.touched, "experts-heuristic");
  // The two products' times add up, not their terms' cubes.
  const double products = up.total() + down.total();
  price.time += Microseconds{
      products - GroupedTime{up.compute + down.compute, up.memory + down.memory}.total()};
  price.in_range =
      kernel.measured && (work.dtype == DType::kBFloat16 ||
                          (kernel.name == ExpertsLibrary::kTuned && work.dtype == DType::kFloat8));
  terms::set_range(price, price.in_range ? 0.25 : 0.5);
  return price;
}

class Experts final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* shape = std::get_if<ExpertsShape>(&work.shape);
    const ExpertsKernel* kernel =
        shape && work.matrix_units ? find_kernel(gpu.architecture, shape->kernel) : nullptr;
    if (!kernel ||
        std::min({shape->tokens, shape->hidden, shape->inter, shape->experts, shape->topk}) < 1) {
      return unknown_price(work, gpu, "experts-heuristic");
    }
    return layer_price(*kernel, *shape, work, gpu);
  }
};

/// One product by itself, as within a layer, with a plain product's latency. Never measured alone:
/// out of range.
class GroupedGemm final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr std::string_view kName = "grouped-gemm-heuristic";
    const auto* s = std::get_if<GroupedGemmShape>(&work.shape);
    const Architecture& architecture = gpu.architecture;
    const ExpertsKernel* kernel = find_kernel(architecture, ExpertsLibrary::kCutlass);
    if (!kernel && !architecture.experts_kernels.empty()) {
      kernel = &architecture.experts_kernels.front();
    }
    if (!kernel || !s || !work.matrix_units || std::min({s->groups, s->rows, s->n, s->k}) < 1) {
      return unknown_price(work, gpu, kName);
    }
    const double n = static_cast<double>(s->n), k = static_cast<double>(s->k);
    const ExpertLoad load = grouped_load(*s);
    const GroupedTime time =
        grouped_time({.kernel = *kernel,
                      .load = load,
                      .dtype = work.dtype,
                      .rows = static_cast<double>(s->rows),
                      .weight_bytes = load.touched * n * k * size_in_bytes(work.dtype),
                      .few_tokens = s->rows <= s->groups,
                      .gpu = gpu},
                     n, k);
    const double latency = architecture.matrix_gemm ? architecture.matrix_gemm->latency_us
                                                    : 2 * terms::empty_kernel_us(gpu);
    Price price = assemble(time, 0, latency, kName);
    price.in_range = false;
    terms::set_range(price, 0.4);
    return price;
  }
};

}  // namespace

const KernelModel& grouped_gemm_model() { return the_only<GroupedGemm>(); }

const KernelModel& experts_model() { return the_only<Experts>(); }

}  // namespace perfmodel::kernels
