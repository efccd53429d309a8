#include "../../kernels/tril.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace tril_cu {

/// Divisors of an empty tensor's shape are never used, but must not be zero.
kernels::Divider divider(std::int64_t divisor, std::int64_t limit) {
  return {std::max<std::int64_t>(divisor, 1), limit};
}

class TrilWorkload final : public BufferedWorkload {
 public:
  explicit TrilWorkload(const TrilCase& point)
      : point_(point),
        triangle_(kernels::triangle_size(point.features)),
        square_(point.features * point.features) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      const T* in = data<T>(copy, 0);
      T* out = data<T>(copy, 1);
      if (!backward()) {
        return launch_items(
            kernels::TrilForward<T>{in, out, point_.batch, point_.features, triangle_,
                                    divider(triangle_, point_.batch * triangle_)},
            stream);
      }
      return launch_items(
          kernels::TrilBackward<T>{in, out, point_.batch, point_.features, triangle_,
                                   divider(square_, point_.batch * square_),
                                   divider(point_.features, square_)},
          stream);
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    HostRows in(context, data<void>(0, 0), point_.dtype, point_.batch, in_size());
    HostRows out(context, data<void>(0, 1), point_.dtype, point_.batch, out_size());
    ErrorMeter meter;
    // By the larger of the two tensors: rows of one that is not small are downloaded one by one.
    for (const std::int64_t b : sample_rows(point_.batch, square_)) {
      const auto from = in.row(b);
      TRY_OUTCOME(from);
      TRY_OUTCOME(meter.add(out.row(b), expected(*from)));
    }
    return meter.result(0);
  }

 private:
  bool backward() const { return point_.pass == Pass::kBackward; }
  std::int64_t in_size() const { return backward() ? triangle_ : square_; }
  std::int64_t out_size() const { return backward() ? square_ : triangle_; }

  std::vector<Buffer> buffers() const override {
    return {Buffer::uniform(point_.dtype, point_.batch * in_size()),
            Buffer::output(point_.dtype, point_.batch * out_size())};
  }

  reference::Row expected(const reference::Row& from) const {
    reference::Row to(static_cast<std::size_t>(out_size()));
    std::size_t packed = 0;
    for (std::int64_t i = 0; i < point_.features; ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        const auto whole = static_cast<std::size_t>(i * point_.features + j);
        if (backward()) {
          to[whole] = from[packed++];
        } else {
          to[packed++] = from[whole];
        }
      }
    }
    return to;
  }

  TrilCase point_;
  std::int64_t triangle_, square_;
};

}  // namespace tril_cu

std::unique_ptr<Workload> make_tril(const TrilCase& point) {
  return std::make_unique<TrilWorkload>(point);
}

}  // namespace kernels_bench::gpu
