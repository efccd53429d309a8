#include "draw.hpp"
#include "family.hpp"

/// Strided batched products: batch 1 ... 4096, sides 16 ... 2048, plus the products of attention
/// and of a DLRM's interaction.
namespace kernels_bench {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kTf32, DType::kBFloat16, DType::kFloat16};
constexpr std::uint64_t kNamedEvery = 8;

// Scores [L, L] = Q [L, D] K^T and their product with V, batch x heads of them.
GemmCase attention(Draw& draw) {
  const std::int64_t length = draw.pick({128, 384, 512, 1024, 2048});
  const std::int64_t head = draw.pick({64, 128});
  GemmCase point{.batched = true, .batch = draw.pick({12, 16, 32, 64, 96, 128, 192, 384})};
  point.m = length;
  if (draw.chance(0.5)) {
    point.n = length;
    point.k = head;
    point.b_transposed = true;
  } else {
    point.n = head;
    point.k = length;
  }
  return point;
}

// Z Z^T of F vectors of width D per sample, and its gradient.
GemmCase interaction(Draw& draw) {
  const std::int64_t vectors = draw.pick({9, 27, 41});
  const std::int64_t dim = draw.pick({64, 128});
  GemmCase point{.batched = true, .batch = draw.pick({512, 1024, 2048, 4096})};
  point.m = vectors;
  const bool forward = draw.chance(0.5);
  point.n = forward ? vectors : dim;
  point.k = forward ? dim : vectors;
  point.b_transposed = forward;
  return point;
}

GemmCase random(Draw& draw) {
  GemmCase point{.batched = true};
  point.batch = draw.log_uniform(1, 4096);
  point.m = draw.size(16, 2048);
  point.n = draw.size(16, 2048);
  point.k = draw.size(16, 2048);
  const std::size_t layout = draw.below(3);
  point.a_transposed = layout == 1;
  point.b_transposed = layout == 2;
  return point;
}

std::optional<Case> draw_bmm(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  Draw draw(seed, "bmm", index);
  const DType dtype = kTypes[draw.below(4)];
  GemmCase point = first_within(limits, [&] {
    if (index % kNamedEvery == 0) return draw.chance(0.5) ? attention(draw) : interaction(draw);
    return random(draw);
  });
  point.dtype = dtype;
  return point;
}

constexpr std::string_view kColumns[] = {"op", "dtype", "b", "m", "n", "k", "layout"};

}  // namespace

const Family kBmmFamily = {"bmm",   "strided batched matrix products", 6000, true, kColumns,
                           draw_bmm};

}  // namespace kernels_bench
