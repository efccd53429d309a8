#include "perfmodel/predictors/kernel.hpp"

#include <algorithm>

#include "perfmodel/result.hpp"

namespace perfmodel {

std::string_view to_string(KernelFamily family) {
  switch (family) {
    case KernelFamily::kGemm:
      return "gemm";
    case KernelFamily::kConvolution:
      return "convolution";
    case KernelFamily::kEmbeddingForward:
      return "embedding_forward";
    case KernelFamily::kEmbeddingBackward:
      return "embedding_backward";
    case KernelFamily::kElementwise:
      return "elementwise";
    case KernelFamily::kReduction:
      return "reduction";
    case KernelFamily::kSoftmax:
      return "softmax";
    case KernelFamily::kNorm:
      return "norm";
    case KernelFamily::kPooling:
      return "pooling";
    case KernelFamily::kDropout:
      return "dropout";
    case KernelFamily::kTranspose:
      return "transpose";
    case KernelFamily::kIndex:
      return "index";
    case KernelFamily::kInteraction:
      return "interaction";
    case KernelFamily::kSort:
      return "sort";
    case KernelFamily::kConcat:
      return "concat";
    case KernelFamily::kOptimizer:
      return "optimizer";
    case KernelFamily::kAttention:
      return "attention";
    case KernelFamily::kGroupedGemm:
      return "grouped_gemm";
    case KernelFamily::kExperts:
      return "experts";
    case KernelFamily::kLinearAttention:
      return "linear_attention";
    case KernelFamily::kRecurrent:
      return "recurrent";
    case KernelFamily::kCopy:
      return "copy";
    case KernelFamily::kSet:
      return "set";
    case KernelFamily::kCollective:
      return "collective";
    case KernelFamily::kQuantize:
      return "quantize";
    case KernelFamily::kSmall:
      return "small";
  }
  return "unknown";
}

std::string_view to_string(Scaling scaling) {
  switch (scaling) {
    case Scaling::kTensor:
      return "tensor";
    case Scaling::kToken:
      return "token";
    case Scaling::kBlock:
      return "block";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::kContiguous:
      return "contiguous";
    case Layout::kBroadcast:
      return "broadcast";
    case Layout::kStrided:
      return "strided";
    case Layout::kTransposed:
      return "transposed";
    case Layout::kMixedTypes:
      return "mixed types";
    case Layout::kUpsampled3d:
      return "upsampled 3d";
  }
  return "unknown";
}

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kMemory:
      return "memory";
    case Bound::kLatency:
      return "latency";
    case Bound::kLink:
      return "link";
    case Bound::kMeasured:
      return "measured";
  }
  return "unknown";
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
  switch (knowledge) {
    case Knowledge::kNone:
      return "none";
    case Knowledge::kArchitecture:
      return "architecture";
    case Knowledge::kChip:
      return "chip";
    case Knowledge::kBoard:
      return "board";
  }
  return "none";
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
