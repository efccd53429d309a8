#include "draw.hpp"
#include "family.hpp"
#include "workload_shapes.hpp"

/// Matrix products, M, N, K log-uniform in 16 ... 32768 plus the layers of DLRMs and transformers:
/// forward pass (with bias and without), input gradient and weight gradient.
namespace kernels_bench {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kTf32, DType::kBFloat16, DType::kFloat16};
constexpr std::uint64_t kNamedEvery = 4;  // points per named shape

GemmCase forward(const Layer& layer, bool bias) {
  return {.m = layer.rows, .n = layer.out, .k = layer.in, .b_transposed = true, .bias = bias};
}

GemmCase input_gradient(const Layer& layer) {
  return {.m = layer.rows, .n = layer.in, .k = layer.out};
}

GemmCase weight_gradient(const Layer& layer) {
  return {.m = layer.out, .n = layer.in, .k = layer.rows, .a_transposed = true};
}

// Every layer comes in four roles and four types; the order is shuffled by a fixed stride, so that
// a short campaign sees some of each.
GemmCase named(std::uint64_t number) {
  const auto layers = workload_layers();
  const std::uint64_t count = layers.size() * 16;
  constexpr std::uint64_t kStride = 7919;  // prime, divides no count in use
  const std::uint64_t i = number * kStride % count;
  const Layer& layer = layers[i / 16];
  GemmCase point;
  switch (i % 4) {
    case 0: point = forward(layer, true); break;
    case 1: point = forward(layer, false); break;
    case 2: point = input_gradient(layer); break;
    default: point = weight_gradient(layer);
  }
  point.dtype = kTypes[i / 4 % 4];
  return point;
}

GemmCase random(Draw& draw) {
  GemmCase point;
  point.dtype = kTypes[draw.below(4)];
  point.m = draw.size(16, 32768);
  point.n = draw.size(16, 32768);
  point.k = draw.size(16, 32768);
  const std::size_t role = draw.below(4);  // nn, nt, tn, tn with bias
  point.a_transposed = role == 1;
  point.b_transposed = role >= 2;
  point.bias = role == 3;
  return point;
}

std::optional<Case> draw_gemm(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  if (index % kNamedEvery == 0) return named(index / kNamedEvery);
  Draw draw(seed, "gemm", index);
  GemmCase point = first_within(limits, [&] { return random(draw); });
  return point;
}

constexpr std::string_view kColumns[] = {"op", "dtype", "m", "n", "k", "layout"};

}  // namespace

const Family kGemmFamily = {"gemm",   "matrix products and linear layers", 12000, true, kColumns,
                            draw_gemm};

}  // namespace kernels_bench
