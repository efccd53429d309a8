#include "draw.hpp"
#include "family.hpp"

/// Convolutions, all three passes: the layers of ResNet-50 and random ones. Not part of the default
/// campaign: the models that need them are few.
namespace kernels_bench {
namespace {

constexpr std::uint64_t kNamedEvery = 4;
constexpr DType kTypes[] = {DType::kFloat32, DType::kTf32, DType::kBFloat16, DType::kFloat16};

// Channels in, side, channels out, filter, stride (He et al., CVPR 2016, table 1).
struct Resnet50Layer {
  std::int64_t c, side, k, filter, stride;
};
constexpr Resnet50Layer kResnet50[] = {
    {3, 224, 64, 7, 2},     {64, 56, 64, 1, 1},    {64, 56, 64, 3, 1},    {64, 56, 256, 1, 1},
    {256, 56, 64, 1, 1},    {256, 56, 128, 1, 1},  {128, 56, 128, 3, 2},  {128, 28, 512, 1, 1},
    {256, 56, 512, 1, 2},   {512, 28, 128, 1, 1},  {128, 28, 128, 3, 1},  {512, 28, 256, 1, 1},
    {256, 28, 256, 3, 2},   {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2}, {1024, 14, 256, 1, 1},
    {256, 14, 256, 3, 1},   {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1, 1},
    {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1},  {512, 7, 512, 3, 1}};

void name_shape(ConvolutionCase& point, Draw& draw) {
  const Resnet50Layer& layer = kResnet50[draw.below(std::size(kResnet50))];
  point.n = draw.pick({16, 32});
  point.c = layer.c;
  point.h = point.w = layer.side;
  point.k = layer.k;
  point.filter = layer.filter;
  point.pad = layer.filter / 2;
  point.stride = layer.stride;
}

void randomise(ConvolutionCase& point, Draw& draw) {
  point.n = draw.pick({1, 4, 8, 16, 32, 64, 128});
  point.c = draw.size(3, 2048);
  point.k = draw.size(16, 2048);
  point.h = point.w = draw.log_uniform(7, 299);
  point.filter = draw.pick({1, 1, 3, 3, 3, 5, 7});
  point.pad = draw.chance(0.8) ? point.filter / 2 : 0;
  point.stride = draw.chance(0.75) ? 1 : 2;
}

std::optional<Case> draw_convolution(std::uint64_t seed, std::uint64_t index,
                                     const Limits& limits) {
  Draw draw(seed, "convolution", index);
  ConvolutionCase point;
  point.dtype = kTypes[draw.below(4)];
  point.direction = static_cast<ConvolutionCase::Direction>(draw.below(3));
  do {
    index % kNamedEvery == 0 ? name_shape(point, draw) : randomise(point, draw);
  } while (point.h < point.filter || !within(point, limits));
  return point;
}

constexpr std::string_view kColumns[] = {"op",    "dtype", "direction", "n",       "c",
                                         "h",     "w",     "k",         "r",       "s",
                                         "pad_h", "pad_w", "stride_h",  "stride_w"};

}  // namespace

const Family kConvolutionFamily = {"convolution", "convolutions, forward and both gradients",
                                   4000,          false,
                                   kColumns,      draw_convolution};

}  // namespace kernels_bench
