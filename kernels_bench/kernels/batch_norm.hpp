#pragma once

#include "layer_norm.hpp"  // kNormEpsilon
#include "team.hpp"

/// Training-mode batch norm of [images, channels, pixels] with fp32 weight and bias. Running
/// statistics are left out: they are 4 * channels bytes.
namespace kernels_bench::kernels {

/// The tensor as vectors of N pixels (N divides `pixels`).
struct BatchNormShape {
  std::int64_t images, channels, pixels, plane_vectors;
  Divider by_plane, by_channels;

  BatchNormShape() = default;
  BatchNormShape(std::int64_t images_, std::int64_t channels_, std::int64_t pixels_, int n)
      : images(images_),
        channels(channels_),
        pixels(pixels_),
        plane_vectors(pixels_ / n),
        by_plane(pixels_ / n, images_ * channels_ * (pixels_ / n)),
        by_channels(channels_, images_ * channels_) {}

  PM_HD std::int64_t vectors() const { return images * channels * plane_vectors; }
  PM_HD std::int64_t channel_vectors() const { return images * plane_vectors; }
  PM_HD float count() const { return static_cast<float>(images * pixels); }
  PM_HD std::int64_t channel_of(std::int64_t vector) const {
    std::int64_t image = 0, channel = 0;
    by_channels.split(by_plane.quotient(vector), image, channel);
    return channel;
  }
};

/// Per channel, forward: mean and rstd. Backward: dbias = sum(dy), dweight = sum(dy xhat).
struct ChannelPair {
  float* first;
  float* second;
};

/// One block per channel and part of it. One part: writes the result; several: partial sums
/// [channels, parts], which BatchNormCombine turns into the result.
///
/// Forward sums are of x - shift, shift the channel's first element, so that a large mean cancels
/// nothing.
template <class T, int N, bool kBackward>
struct BatchNormStatistics {
  static constexpr int kUnroll = kBackward ? 2 : 4;
  const T* in;
  const T* dy;        ///< backward
  const float* mean;  ///< backward
  const float* rstd;  ///< backward
  ChannelPair partial, result;
  BatchNormShape shape;
  std::int64_t parts, part_vectors;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<true, Block> team{block, 0};
    for (std::int64_t task = team.index(); task < shape.channels * parts; task += team.count()) {
      const std::int64_t channel = task / parts, begin = (task - channel * parts) * part_vectors;
      float first = 0, second = 0;
      add_up(team, channel, begin, first, second);
      first = team.template reduce<Sum>(first);
      second = team.template reduce<Sum>(second);
      if (team.rank() != 0) continue;
      if (parts == 1) {
        finish(channel, first, second);
      } else {
        partial.first[task] = first;
        partial.second[task] = second;
      }
    }
  }

  PM_HD void finish(std::int64_t channel, float first, float second) const {
    if constexpr (!kBackward) {
      const float offset = first / shape.count();
      const float variance = second / shape.count() - offset * offset;
      first = to_float(in[channel * shape.pixels]) + offset;
      second = 1 / sqrtf(fmaxf(variance, 0) + kNormEpsilon);
    }
    result.first[channel] = first;
    result.second[channel] = second;
  }

 private:
  /// First element of vector `index` of a channel.
  PM_HD std::int64_t element_of(std::int64_t channel, std::int64_t index) const {
    std::int64_t image = 0, vector = 0;
    shape.by_plane.split(index, image, vector);
    return (image * shape.channels + channel) * shape.pixels + vector * N;
  }

  template <class Team>
  PM_HD void add_up(const Team& team, std::int64_t channel, std::int64_t begin, float& first,
                    float& second) const {
    const std::int64_t all = shape.channel_vectors();
    const std::int64_t end = begin + part_vectors < all ? begin + part_vectors : all;
    const float shift = kBackward ? mean[channel] : to_float(in[channel * shape.pixels]);
    const float scale = kBackward ? rstd[channel] : 1;
    for (std::int64_t at = begin + team.rank(); at < end; at += team.size() * kUnroll) {
      Vector<T, N> x[kUnroll] = {}, gradient[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t index = at + static_cast<std::int64_t>(u) * team.size();
        if (index >= end) break;
        x[u] = load<N>(in + element_of(channel, index));
        if constexpr (kBackward) gradient[u] = load<N>(dy + element_of(channel, index));
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (at + static_cast<std::int64_t>(u) * team.size() >= end) break;
        PM_UNROLL
        for (int k = 0; k < N; ++k) {
          const float centred = (to_float(x[u].values[k]) - shift) * scale;
          float addend = centred;
          if constexpr (kBackward) addend = to_float(gradient[u].values[k]);
          first += addend;
          second += addend * centred;
        }
      }
    }
  }
};

/// One thread per channel adds the parts up.
template <class T, int N, bool kBackward>
struct BatchNormCombine {
  BatchNormStatistics<T, N, kBackward> statistics;

  std::int64_t items() const { return statistics.shape.channels; }
  static constexpr int kUnroll = 1;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    visit_tiles<1>(block, statistics.shape.channels, [&](std::int64_t channel) {
      if (channel >= statistics.shape.channels) return;
      float first = 0, second = 0;
      for (std::int64_t part = 0; part < statistics.parts; ++part) {
        first += statistics.partial.first[channel * statistics.parts + part];
        second += statistics.partial.second[channel * statistics.parts + part];
      }
      statistics.finish(channel, first, second);
    });
  }
};

/// y = (x - mean) rstd weight + bias.
template <class T, int N>
struct BatchNormApply {
  static constexpr int kUnroll = 4;
  const T* in;
  T* out;
  const float* mean;
  const float* rstd;
  const float* weight;
  const float* bias;
  BatchNormShape shape;

  std::int64_t items() const { return shape.vectors(); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t count = shape.vectors();
    visit_tiles<kUnroll>(block, count, [&](std::int64_t tile) {
      Vector<T, N> x[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = tile + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) x[u] = load<N>(in + i * N);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = tile + static_cast<std::int64_t>(u) * block.threads();
        if (i >= count) break;
        const std::int64_t channel = shape.channel_of(i);
        const float scale = rstd[channel] * weight[channel];
        const float average = mean[channel], addend = bias[channel];
        float y[N];
        PM_UNROLL
        for (int k = 0; k < N; ++k) {
          y[k] = (to_float(x[u].values[k]) - average) * scale + addend;
        }
        store(out + i * N, pack<T>(y));
      }
    });
  }
};

/// dx = weight rstd (dy - mean(dy) - xhat mean(dy xhat)).
template <class T, int N>
struct BatchNormInputGradient {
  static constexpr int kUnroll = 2;
  const T* in;
  const T* dy;
  T* dx;
  const float* mean;
  const float* rstd;
  const float* weight;
  const float* dbias;
  const float* dweight;
  BatchNormShape shape;

  std::int64_t items() const { return shape.vectors(); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t count = shape.vectors();
    visit_tiles<kUnroll>(block, count, [&](std::int64_t tile) {
      Vector<T, N> x[kUnroll] = {}, gradient[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = tile + static_cast<std::int64_t>(u) * block.threads();
        if (i >= count) break;
        x[u] = load<N>(in + i * N);
        gradient[u] = load<N>(dy + i * N);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = tile + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) store(dx + i * N, result(shape.channel_of(i), x[u], gradient[u]));
      }
    });
  }

 private:
  PM_HD Vector<T, N> result(std::int64_t channel, const Vector<T, N>& x,
                            const Vector<T, N>& gradient) const {
    const float scale = rstd[channel], average = mean[channel];
    const float factor = weight[channel] * scale;
    const float mean_dy = dbias[channel] / shape.count();
    const float mean_product = dweight[channel] / shape.count();
    float result[N];
    PM_UNROLL
    for (int k = 0; k < N; ++k) {
      const float xhat = (to_float(x.values[k]) - average) * scale;
      result[k] = factor * (to_float(gradient.values[k]) - mean_dy - xhat * mean_product);
    }
    return pack<T>(result);
  }
};

}  // namespace kernels_bench::kernels
