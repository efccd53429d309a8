#include "../../kernels/concat.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace concat_cu {

class ConcatWorkload final : public BufferedWorkload {
 public:
  explicit ConcatWorkload(const ConcatCase& point) : point_(point) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      const bool widest =
          point_.cols_a % kernels::kWidest<T> == 0 && point_.cols_b % kernels::kWidest<T> == 0;
      return with_vector<T>(widest, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        const std::int64_t a = point_.cols_a / kVector, b = point_.cols_b / kVector;
        return launch_items(
            kernels::Concat<T, kVector>{data<T>(copy, 0), data<T>(copy, 1), data<T>(copy, 2),
                                        point_.rows, a, b,
                                        kernels::Divider(a + b, point_.rows * (a + b))},
            stream);
      });
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    HostRows a(context, data<void>(0, 0), point_.dtype, point_.rows, point_.cols_a);
    HostRows b(context, data<void>(0, 1), point_.dtype, point_.rows, point_.cols_b);
    HostRows out(context, data<void>(0, 2), point_.dtype, point_.rows, cols());
    ErrorMeter meter;
    for (const std::int64_t r : sample_rows(point_.rows, cols())) {
      auto expected = a.row(r);
      TRY_OUTCOME(expected);
      const auto right = b.row(r);
      TRY_OUTCOME(right);
      expected->insert(expected->end(), right->begin(), right->end());
      TRY_OUTCOME(meter.add(out.row(r), *expected));
    }
    return meter.result(0);
  }

 private:
  std::int64_t cols() const { return point_.cols_a + point_.cols_b; }

  std::vector<Buffer> buffers() const override {
    return {Buffer::uniform(point_.dtype, point_.rows * point_.cols_a),
            Buffer::uniform(point_.dtype, point_.rows * point_.cols_b),
            Buffer::output(point_.dtype, point_.rows * cols())};
  }

  ConcatCase point_;
};

}  // namespace concat_cu

std::unique_ptr<Workload> make_concat(const ConcatCase& point) {
  return std::make_unique<ConcatWorkload>(point);
}

}  // namespace kernels_bench::gpu
