#include "../../kernels/transpose.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace transpose_cu {

class TransposeWorkload final : public BufferedWorkload {
 public:
  explicit TransposeWorkload(const TransposeCase& point) : point_(point) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      using Body = kernels::Transpose<T>;
      const Body body{data<T>(copy, 0), data<T>(copy, 1), point_.batch, point_.rows, point_.cols};
      return launch_body<Body::kThreads>(body, body.tiles(), Body::kThreads, Body::kSharedBytes,
                                         stream);
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    ErrorMeter meter;
    TRY_OUTCOME(elements() <= kWholeElements ? compare_all(context, meter)
                                             : compare_samples(context, meter));
    return meter.result(0);
  }

 private:
  std::int64_t elements() const { return point_.batch * point_.rows * point_.cols; }

  std::vector<Buffer> buffers() const override {
    return {Buffer::uniform(point_.dtype, elements()), Buffer::output(point_.dtype, elements())};
  }

  Outcome<void> compare_all(Context& context, ErrorMeter& meter) {
    const auto in = read_elements(context, data<void>(0, 0), point_.dtype, 0, elements());
    TRY_OUTCOME(in);
    reference::Row expected;
    for (std::int64_t b = 0; b < point_.batch; ++b) {
      for (std::int64_t c = 0; c < point_.cols; ++c) {
        for (std::int64_t r = 0; r < point_.rows; ++r) {
          expected.push_back(
              (*in)[static_cast<std::size_t>((b * point_.rows + r) * point_.cols + c)]);
        }
      }
    }
    return meter.add(read_elements(context, data<void>(0, 1), point_.dtype, 0, elements()),
                     expected);
  }

  /// Columns of the input are rows of the output.
  Outcome<void> compare_samples(Context& context, ErrorMeter& meter) {
    for (const std::int64_t row : sample_rows(point_.batch * point_.cols, point_.rows)) {
      const std::int64_t matrix = row / point_.cols, col = row % point_.cols;
      const auto expected =
          read_block(context, data<void>(0, 0), point_.dtype,
                     matrix * point_.rows * point_.cols + col, point_.cols, 1, point_.rows);
      TRY_OUTCOME(expected);
      TRY_OUTCOME(meter.add(
          read_elements(context, data<void>(0, 1), point_.dtype, row * point_.rows, point_.rows),
          *expected));
    }
    return {};
  }

  TransposeCase point_;
};

}  // namespace transpose_cu

std::unique_ptr<Workload> make_transpose(const TransposeCase& point) {
  return std::make_unique<TransposeWorkload>(point);
}

}  // namespace kernels_bench::gpu
