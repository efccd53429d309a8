#include "../../kernels/batch_norm.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace batch_norm_cu {

/// Numbers of the buffers; forward passes have no gradient (size 0).
enum : int {
  kIn,
  kGradient,
  kOut,
  kWeight,
  kBias,
  kMean,
  kRstd,
  kWeightGradient,
  kBiasGradient,
  kFirstPartial,
  kSecondPartial
};

class BatchNormWorkload final : public BufferedWorkload {
 public:
  explicit BatchNormWorkload(const BatchNormCase& point) : point_(point) {
    const int vector = 16 / bytes_of(point.dtype);
    widest_ = point.pixels % vector == 0;
    const std::int64_t vectors = point.images * (widest_ ? point.pixels / vector : point.pixels);
    const std::int64_t wanted =
        kernels::ceil_divide(device_limits().blocks(kThreads), point.channels);
    parts_ = std::max<std::int64_t>(1, std::min(wanted, vectors / (4 * kThreads)));
    part_vectors_ = kernels::ceil_divide(vectors, parts_);
  }

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(widest_, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        return backward() ? launch_backward<T, kVector>(copy, stream)
                          : launch_forward<T, kVector>(copy, stream);
      });
    });
  }

  /// The reference needs whole channels: some of them, packed on the device; two if they are large.
  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const std::int64_t most = kWholeElements / (point_.images * point_.pixels);
    ErrorMeter meter;
    for (const std::int64_t channel :
         spread_rows(point_.channels, std::clamp<std::int64_t>(most, 2, 4))) {
      TRY_OUTCOME(check_channel(context, channel, meter));
    }
    return meter.result(tolerance(point_.dtype));
  }

 private:
  bool backward() const { return point_.pass == Pass::kBackward; }
  std::int64_t elements() const { return point_.images * point_.channels * point_.pixels; }

  std::vector<Buffer> buffers() const override {
    const std::int64_t channels = point_.channels;
    const std::int64_t partial = parts_ > 1 ? channels * parts_ : 0;
    // Any mean and rstd do for the backward pass: its formula takes them as they are.
    return {Buffer::uniform(point_.dtype, elements()),
            Buffer::uniform(point_.dtype, backward() ? elements() : 0),
            Buffer::output(point_.dtype, elements()),
            Buffer::uniform(DType::kFloat32, channels, 0.5F, 1.5F),
            Buffer::uniform(DType::kFloat32, channels),
            Buffer::uniform(DType::kFloat32, channels, -0.1F, 0.1F),
            Buffer::uniform(DType::kFloat32, channels, 1.5F, 2),
            Buffer::output(DType::kFloat32, channels),
            Buffer::output(DType::kFloat32, channels),
            Buffer::output(DType::kFloat32, partial),
            Buffer::output(DType::kFloat32, partial)};
  }

  template <class T, int N, bool kBackward>
  Outcome<void> launch_statistics(int copy, kernels::ChannelPair result,
                                  const kernels::BatchNormShape& shape, Stream stream) {
    const kernels::ChannelPair partial = {data<float>(copy, kFirstPartial),
                                          data<float>(copy, kSecondPartial)};
    const kernels::BatchNormStatistics<T, N, kBackward> statistics{data<T>(copy, kIn),
                                                                   data<T>(copy, kGradient),
                                                                   data<float>(copy, kMean),
                                                                   data<float>(copy, kRstd),
                                                                   partial,
                                                                   result,
                                                                   shape,
                                                                   parts_,
                                                                   part_vectors_};
    TRY_OUTCOME(launch_body(statistics, point_.channels * parts_, kThreads,
                            kernels::reduce_block_bytes(kThreads), stream));
    if (parts_ == 1) return {};
    return launch_items(kernels::BatchNormCombine<T, N, kBackward>{statistics}, stream);
  }

  template <class T, int N>
  Outcome<void> launch_forward(int copy, Stream stream) {
    const kernels::BatchNormShape shape(point_.images, point_.channels, point_.pixels, N);
    float* mean = data<float>(copy, kMean);
    float* rstd = data<float>(copy, kRstd);
    TRY_OUTCOME((launch_statistics<T, N, false>(copy, {mean, rstd}, shape, stream)));
    return launch_items(
        kernels::BatchNormApply<T, N>{data<T>(copy, kIn), data<T>(copy, kOut), mean, rstd,
                                      data<float>(copy, kWeight), data<float>(copy, kBias), shape},
        stream);
  }

  template <class T, int N>
  Outcome<void> launch_backward(int copy, Stream stream) {
    const kernels::BatchNormShape shape(point_.images, point_.channels, point_.pixels, N);
    float* dbias = data<float>(copy, kBiasGradient);
    float* dweight = data<float>(copy, kWeightGradient);
    TRY_OUTCOME((launch_statistics<T, N, true>(copy, {dbias, dweight}, shape, stream)));
    return launch_items(
        kernels::BatchNormInputGradient<T, N>{data<T>(copy, kIn), data<T>(copy, kGradient),
                                              data<T>(copy, kOut), data<float>(copy, kMean),
                                              data<float>(copy, kRstd), data<float>(copy, kWeight),
                                              dbias, dweight, shape},
        stream);
  }

  Outcome<reference::Row> read_channel(Context& context, int buffer, std::int64_t channel) {
    return read_block(context, data<void>(0, buffer), point_.dtype, channel * point_.pixels,
                      point_.channels * point_.pixels, point_.pixels, point_.images);
  }

  Outcome<void> check_channel(Context& context, std::int64_t channel, ErrorMeter& meter) {
    const auto x = read_channel(context, kIn, channel);
    TRY_OUTCOME(x);
    double parameter[4] = {};
    for (int i = 0; i < 4; ++i) {
      const auto value =
          read_elements(context, data<void>(0, kWeight + i), DType::kFloat32, channel, 1);
      TRY_OUTCOME(value);
      parameter[i] = value->front();
    }
    const auto [weight, bias, mean, rstd] = parameter;
    reference::Row expected;
    if (backward()) {
      const auto dy = read_channel(context, kGradient, channel);
      TRY_OUTCOME(dy);
      const reference::Statistics statistics = {mean, rstd};
      const auto sums = reference::batch_norm_sums(*x, *dy, statistics);
      for (std::size_t i = 0; i < x->size(); ++i) {
        expected.push_back(reference::batch_norm_gradient((*x)[i], (*dy)[i], weight, statistics,
                                                          sums, static_cast<double>(x->size())));
      }
    } else {
      const auto statistics = reference::statistics(*x);
      for (const double value : *x) {
        expected.push_back((value - statistics.mean) * statistics.rstd * weight + bias);
      }
    }
    return meter.add(read_channel(context, kOut, channel), expected);
  }

  BatchNormCase point_;
  bool widest_ = false;
  std::int64_t parts_ = 1, part_vectors_ = 0;
};

}  // namespace batch_norm_cu

std::unique_ptr<Workload> make_batch_norm(const BatchNormCase& point) {
  return std::make_unique<BatchNormWorkload>(point);
}

}  // namespace kernels_bench::gpu
