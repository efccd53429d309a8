#include "../../kernels/dropout.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace dropout_cu {

constexpr std::uint64_t kSeed = 0x5eed;

/// Forward writes the mask; the backward pass's buffers get theirs by one forward pass.
class DropoutWorkload final : public BufferedWorkload {
 public:
  explicit DropoutWorkload(const DropoutCase& point) : point_(point) {}

  Outcome<void> prepare(Context& context, int copies) override {
    TRY_OUTCOME(BufferedWorkload::prepare(context, copies));
    for (int copy = 0; backward() && copy < copies; ++copy) {
      TRY_OUTCOME(launch_forward(copy, context.stream()));
    }
    return {};
  }

  Outcome<void> launch(int copy, Stream stream) override {
    if (!backward()) return launch_forward(copy, stream);
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return launch_items(kernels::DropoutBackward<T>{data<T>(copy, 0), data<std::uint8_t>(copy, 1),
                                                      data<T>(copy, 2), point_.elements},
                          stream);
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const Chunks chunks(point_.elements);
    ErrorMeter meter;
    for (const std::int64_t chunk : sample_rows(chunks.rows, chunks.cols)) {
      const std::int64_t begin = chunk * chunks.cols, count = chunks.size(chunk);
      auto expected = read_elements(context, data<void>(0, 0), point_.dtype, begin, count);
      TRY_OUTCOME(expected);
      std::vector<std::uint8_t> mask(static_cast<std::size_t>(count));
      TRY_OUTCOME(context.download(mask.data(), data<char>(0, 1) + begin, count));
      for (std::size_t i = 0; i < mask.size(); ++i) {
        const bool keep = reference::dropout_keeps(kSeed, begin + static_cast<std::int64_t>(i));
        meter.add(mask[i], keep ? 1 : 0);
        (*expected)[i] *= keep ? 2 : 0;
      }
      TRY_OUTCOME(meter.add(read_elements(context, data<void>(0, 2), point_.dtype, begin, count),
                            *expected));
    }
    return meter.result(tolerance(point_.dtype));
  }

 private:
  bool backward() const { return point_.pass == Pass::kBackward; }

  std::vector<Buffer> buffers() const override {
    return {Buffer::uniform(point_.dtype, point_.elements), Buffer::workspace(point_.elements),
            Buffer::output(point_.dtype, point_.elements)};
  }

  Outcome<void> launch_forward(int copy, Stream stream) {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return launch_items(
          kernels::DropoutForward<T>{data<T>(copy, 0), data<T>(copy, 2),
                                     data<std::uint8_t>(copy, 1), point_.elements, kSeed},
          stream);
    });
  }

  DropoutCase point_;
};

}  // namespace dropout_cu

std::unique_ptr<Workload> make_dropout(const DropoutCase& point) {
  return std::make_unique<DropoutWorkload>(point);
}

}  // namespace kernels_bench::gpu
