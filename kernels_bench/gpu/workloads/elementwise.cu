#include "../../kernels/elementwise.hpp"

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace elementwise_cu {

using Op = ElementwiseCase::Op;

int inputs_of(Op op) {
  if (op == Op::kAddcmul) return 3;
  return op == Op::kAdd || op == Op::kMul ? 2 : 1;
}

class ElementwiseWorkload final : public BufferedWorkload {
 public:
  explicit ElementwiseWorkload(const ElementwiseCase& point) : point_(point) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      switch (point_.op) {
        case Op::kRelu:
          return launch_op<kernels::Relu, T>(copy, stream);
        case Op::kGelu:
          return launch_op<kernels::Gelu, T>(copy, stream);
        case Op::kTanh:
          return launch_op<kernels::Tanh, T>(copy, stream);
        case Op::kSigmoid:
          return launch_op<kernels::Sigmoid, T>(copy, stream);
        case Op::kExp:
          return launch_op<kernels::Exp, T>(copy, stream);
        case Op::kAddScalar:
          return launch_op<kernels::AddScalar, T>(copy, stream);
        case Op::kAdd:
          return launch_op<kernels::Add, T>(copy, stream);
        case Op::kMul:
          return launch_op<kernels::Mul, T>(copy, stream);
        default:
          return launch_op<kernels::Addcmul, T>(copy, stream);
      }
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const Chunks chunks(elements());
    const int inputs = inputs_of(point_.op);
    ErrorMeter meter;
    for (const std::int64_t chunk : sample_rows(chunks.rows, chunks.cols)) {
      const std::int64_t begin = chunk * chunks.cols, count = chunks.size(chunk);
      reference::Row x[3];
      for (int n = 0; n < 3; ++n) {
        if (n >= inputs) {
          x[n] = x[0];
          continue;
        }
        auto row = read_elements(context, data<void>(0, n), point_.dtype, begin, count);
        TRY_OUTCOME(row);
        x[n] = std::move(*row);
      }
      reference::Row expected;
      for (std::size_t i = 0; i < x[0].size(); ++i) {
        expected.push_back(reference::elementwise(point_.op, x[0][i], x[1][i], x[2][i]));
      }
      TRY_OUTCOME(meter.add(
          read_elements(context, data<void>(0, inputs), point_.dtype, begin, count), expected));
    }
    return meter.result(tolerance(point_.dtype));
  }

 private:
  std::int64_t elements() const { return point_.rows * point_.cols; }

  std::vector<Buffer> buffers() const override {
    std::vector<Buffer> list(static_cast<std::size_t>(inputs_of(point_.op)),
                             Buffer::uniform(point_.dtype, elements(), -2, 2));
    list.push_back(Buffer::output(point_.dtype, elements()));
    return list;
  }

  template <class Body, class T>
  Outcome<void> launch_op(int copy, Stream stream) {
    kernels::Elementwise<Body, T> body{};
    for (int n = 0; n < Body::kInputs; ++n) body.in[n] = data<T>(copy, n);
    body.out = data<T>(copy, Body::kInputs);
    body.elements = elements();
    return launch_items(body, stream);
  }

  ElementwiseCase point_;
};

}  // namespace elementwise_cu

std::unique_ptr<Workload> make_elementwise(const ElementwiseCase& point) {
  return std::make_unique<ElementwiseWorkload>(point);
}

}  // namespace kernels_bench::gpu
