#include "perfmodel/predictors/kernel.hpp"

#include <algorithm>

#include "base/enum_name.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

std::string_view to_string(KernelFamily family) {
  static constexpr std::string_view kNames[] = {"gemm",
                                                "convolution",
                                                "embedding_forward",
                                                "embedding_backward",
                                                "elementwise",
                                                "reduction",
                                                "softmax",
                                                "norm",
                                                "pooling",
                                                "dropout",
                                                "transpose",
                                                "index",
                                                "interaction",
                                                "sort",
                                                "concat",
                                                "optimizer",
                                                "attention",
                                                "grouped_gemm",
                                                "experts",
                                                "linear_attention",
                                                "recurrent",
                                                "copy",
                                                "set",
                                                "collective",
                                                "quantize",
                                                "part",
                                                "small"};
  return enum_name(kNames, family);
}

std::string_view to_string(Scaling scaling) {
  static constexpr std::string_view kNames[] = {"tensor", "token", "block"};
  return enum_name(kNames, scaling);
}

std::string_view to_string(Layout layout) {
  static constexpr std::string_view kNames[] = {"contiguous", "broadcast",   "strided",
                                                "transposed", "mixed types", "upsampled 3d",
                                                "generated"};
  return enum_name(kNames, layout);
}

std::string_view to_string(Bound bound) {
  static constexpr std::string_view kNames[] = {"compute", "memory", "latency", "link", "measured"};
  return enum_name(kNames, bound);
}

namespace {

bool multiplies(KernelFamily family) {
  return family == KernelFamily::kGemm || family == KernelFamily::kConvolution ||
         family == KernelFamily::kAttention || family == KernelFamily::kGroupedGemm ||
         family == KernelFamily::kExperts;
}

}  // namespace

bool lacks_units(const KernelWork& work, const Gpu& gpu) {
  return multiplies(work.family) && !has_matrix_units(work.dtype, gpu);
}

bool computes_in_fp32(const KernelWork& work, const Gpu& gpu) {
  if (!multiplies(work.family)) return false;
  const Gpu::Peaks& peaks = gpu.peak_tflop_per_s;
  if (work.dtype == DType::kFloat32) {  // asked for in TF32
    return work.matrix_units && !peaks.tf32_matrix && !peaks.fp32_matrix;
  }
  const bool is_half = work.dtype == DType::kFloat16 || work.dtype == DType::kBFloat16;
  return is_half && gpu.peak(work.dtype, true).value == gpu.peak(DType::kFloat32, false).value;
}

std::string_view to_string(Knowledge knowledge) {
  static constexpr std::string_view kNames[] = {"none", "architecture", "chip", "board"};
  return enum_name(kNames, knowledge);
}

void KernelModel::price_many(std::span<const KernelWork> work, const Gpu& gpu,
                             std::span<Price> prices) const {
  PERFMODEL_CHECK(work.size() == prices.size());
  for (std::size_t i = 0; i < work.size(); ++i) prices[i] = price(work[i], gpu);
}

void KernelModels::price_many(std::span<const KernelWork> work, const Gpu& gpu,
                              std::span<Price> prices) const {
  PERFMODEL_CHECK(work.size() == prices.size());
  price_families(work, gpu, prices);
  const bool is_known = gpu.architecture.is_known();
  for (std::size_t i = 0; i < work.size(); ++i) {
    prices[i].in_range &= is_known && !lacks_units(work[i], gpu) && !computes_in_fp32(work[i], gpu);
  }
}

void KernelModels::price_families(std::span<const KernelWork> work, const Gpu& gpu,
                                  std::span<Price> prices) const {
  constexpr std::size_t kLongRun = 64;  // gains no more from company
  constexpr std::size_t kGroup = 128;   // small enough to stay in the first-level cache
  const auto family_of = [&](std::size_t i) { return static_cast<std::size_t>(work[i].family); };

  std::array<std::vector<std::size_t>, std::tuple_size_v<decltype(models_)>> places;
  for (std::size_t begin = 0, end = 0; begin < work.size(); begin = end) {
    while (end < work.size() && work[end].family == work[begin].family) ++end;
    if (const std::size_t size = end - begin; size >= kLongRun || size == work.size()) {
      model(work[begin].family)
          .price_many(work.subspan(begin, size), gpu, prices.subspan(begin, size));
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) places[family_of(i)].push_back(i);
  }

  std::vector<KernelWork> group;
  std::array<Price, kGroup> group_prices;
  for (std::size_t family = 0; family < places.size(); ++family) {
    for (std::span<const std::size_t> rest = places[family]; !rest.empty();) {
      const auto now = rest.first(std::min(rest.size(), kGroup));
      rest = rest.subspan(now.size());
      group.clear();
      for (std::size_t i : now) group.push_back(work[i]);
      models_[family]->price_many(group, gpu, std::span(group_prices).first(now.size()));
      for (std::size_t i = 0; i < now.size(); ++i) prices[now[i]] = group_prices[i];
    }
  }
}

}  // namespace perfmodel
