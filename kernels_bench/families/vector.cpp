#include "draw.hpp"
#include "family.hpp"

/// Kernels of the vector units: elementwise ops of two to four tensors, reductions, softmax, layer
/// and batch norm, dropout, the lower triangle of a DLRM's interaction. Rows and columns
/// log-uniform.
namespace kernels_bench {
namespace {

DType type(Draw& draw) {
  return draw.pick({DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kFloat16});
}

Pass pass(Draw& draw) { return draw.chance(0.5) ? Pass::kForward : Pass::kBackward; }

Case elementwise(Draw& draw) {
  ElementwiseCase point;
  point.op = static_cast<ElementwiseCase::Op>(draw.below(9));
  point.dtype = type(draw);
  point.rows = draw.log_uniform(1, 131072);
  point.cols = draw.size(1, 32768);
  return point;
}

Case reduction(Draw& draw) {
  RowCase point;
  point.op = draw.pick({RowCase::Op::kSum, RowCase::Op::kSum, RowCase::Op::kMax});
  point.dtype = type(draw);
  point.rows = draw.log_uniform(1, 65536);
  point.cols = draw.size(1, 65536);
  point.strided = draw.chance(0.5);
  return point;
}

Case normalised(Draw& draw, RowCase::Op op) {
  RowCase point{.op = op};
  point.pass = pass(draw);
  point.dtype = type(draw);
  point.rows = draw.log_uniform(16, 131072);
  point.cols = draw.size(16, 16384);
  return point;
}

Case softmax(Draw& draw) { return normalised(draw, RowCase::Op::kSoftmax); }
Case layer_norm(Draw& draw) { return normalised(draw, RowCase::Op::kLayerNorm); }

Case batch_norm(Draw& draw) {
  BatchNormCase point;
  point.pass = pass(draw);
  point.dtype = type(draw);
  point.images = draw.log_uniform(1, 128);
  point.channels = draw.size(8, 2048);
  const std::int64_t side = draw.pick({1, 7, 8, 14, 17, 28, 35, 56, 112});
  point.pixels = side * side;
  return point;
}

Case dropout(Draw& draw) {
  DropoutCase point;
  point.pass = pass(draw);
  point.dtype = type(draw);
  point.elements = draw.log_uniform(256, 5e8);
  return point;
}

Case tril(Draw& draw) {
  TrilCase point;
  point.pass = pass(draw);
  point.dtype = draw.chance(0.7) ? DType::kFloat32 : DType::kFloat16;
  point.batch = draw.chance(0.3) ? draw.pick({512, 1024, 2048, 4096}) : draw.log_uniform(32, 16384);
  point.features = draw.log_uniform(4, 128);
  return point;
}

std::optional<Case> draw_vector(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  constexpr Case (*kTurns[])(Draw&) = {
      elementwise, reduction,   softmax, layer_norm, elementwise, batch_norm, reduction,
      dropout,     elementwise, tril,    softmax,    layer_norm,  elementwise};
  Draw draw(seed, "vector", index);
  const auto make = kTurns[index % std::size(kTurns)];
  Case point = first_within(limits, [&] { return make(draw); });
  return point;
}

constexpr std::string_view kColumns[] = {"op",       "dtype",  "rows",     "cols",
                                         "elements", "batch",  "features", "n_inputs",
                                         "strided",  "images", "direction"};

}  // namespace

const Family kVectorFamily = {
    "vector", "elementwise ops, reductions, softmax, norms, dropout, lower triangles",
    6000,     true,
    kColumns, draw_vector};

}  // namespace kernels_bench
