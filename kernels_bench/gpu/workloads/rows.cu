#include "../../kernels/layer_norm.hpp"
#include "../../kernels/reductions.hpp"
#include "../../kernels/softmax.hpp"
#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace rows_cu {

/// Enough parts of each task to fill the device, each of at least `least` of the task's units.
std::int64_t parts_for(std::int64_t tasks, std::int64_t blocks, std::int64_t units,
                       std::int64_t least) {
  const std::int64_t wanted = kernels::ceil_divide(blocks, std::max<std::int64_t>(tasks, 1));
  return std::max<std::int64_t>(1, std::min(wanted, units / least));
}

/// Sum or maximum. Two launches where one would not fill the device: parts, then their result.
class ReductionWorkload final : public BufferedWorkload {
 public:
  explicit ReductionWorkload(const RowCase& point) : point_(point) {
    point_.strided ? plan_columns() : plan_rows();
  }

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(widest_, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        if (point_.op == RowCase::Op::kMax) {
          return reduce<kernels::Max, T, kVector>(copy, stream);
        }
        return reduce<kernels::Sum, T, kVector>(copy, stream);
      });
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    return point_.strided ? check_columns(context) : check_rows(context);
  }

 private:
  void plan_rows() {
    plan_ = kernels::plan_rows(point_.cols, bytes_of(point_.dtype));
    widest_ = plan_.widest;
    if (!plan_.whole_block) return;
    plan_.threads = kThreads;
    const std::int64_t vector = widest_ ? 16 / bytes_of(point_.dtype) : 1;
    const std::int64_t vectors = point_.cols / vector;
    parts_ = parts_for(point_.rows, device_limits().blocks(kThreads), vectors, 4 * kThreads);
    part_size_ = kernels::ceil_divide(vectors, parts_) * vector;
    parts_ = kernels::ceil_divide(point_.cols, part_size_);
  }

  /// The tensor is [cols, rows]: `cols` rows of it are combined.
  void plan_columns() {
    const int vector = 16 / bytes_of(point_.dtype);
    widest_ = point_.rows % vector == 0;
    const std::int64_t across = widest_ ? point_.rows / vector : point_.rows;
    while (lanes_x_ < kThreads && lanes_x_ < across && lanes_x_ < kernels::kMaxLanes) lanes_x_ *= 2;
    const std::int64_t levels = kThreads / lanes_x_;
    parts_ = parts_for(kernels::ceil_divide(across, lanes_x_), device_limits().blocks(kThreads),
                       point_.cols, 4 * levels);
    part_size_ = kernels::ceil_divide(point_.cols, parts_);
    parts_ = kernels::ceil_divide(point_.cols, part_size_);
  }

  std::vector<Buffer> buffers() const override {
    // Positive, so that the sum is large compared with its rounding, and within the range of fp16.
    const bool sum = point_.op == RowCase::Op::kSum;
    const auto most = static_cast<float>(std::min(1.0, 6e4 / static_cast<double>(point_.cols)));
    return {Buffer::uniform(point_.dtype, point_.rows * point_.cols, sum ? 0 : -1, sum ? most : 1),
            Buffer::output(point_.dtype, point_.rows),
            Buffer::output(DType::kFloat32, parts_ > 1 ? point_.rows * parts_ : 0)};
  }

  template <class Op, class T, int N>
  Outcome<void> reduce(int copy, Stream stream) {
    if (point_.strided) return columns<Op, T, N>(copy, stream);
    return rows<Op, T, N>(copy, stream);
  }

  template <class Op, class T, int N>
  Outcome<void> rows(int copy, Stream stream) {
    const T* in = data<T>(copy, 0);
    T* out = data<T>(copy, 1);
    float* partial = data<float>(copy, 2);
    const std::int64_t rows = point_.rows, cols = point_.cols;
    if (!plan_.whole_block) {
      return launch_groups(
          kernels::ReduceRows<Op, T, T, N, false>{in, out, rows, cols, 1, cols, plan_.lanes}, rows,
          plan_.lanes, stream);
    }
    const int shared = kernels::reduce_block_bytes(kThreads);
    if (parts_ == 1) {
      return launch_body(kernels::ReduceRows<Op, T, T, N, true>{in, out, rows, cols, 1, cols, 1},
                         rows, kThreads, shared, stream);
    }
    TRY_OUTCOME(launch_body(
        kernels::ReduceRows<Op, T, float, N, true>{in, partial, rows, cols, parts_, part_size_, 1},
        rows * parts_, kThreads, shared, stream));
    return launch_body(
        kernels::ReduceRows<Op, float, T, 1, true>{partial, out, rows, parts_, 1, parts_, 1}, rows,
        kThreads, shared, stream);
  }

  template <class Op, class T, int N>
  Outcome<void> columns(int copy, Stream stream) {
    const T* in = data<T>(copy, 0);
    T* out = data<T>(copy, 1);
    float* partial = data<float>(copy, 2);
    const std::int64_t rows = point_.cols, cols = point_.rows;
    if (parts_ == 1) {
      return launch_strips(
          kernels::ReduceColumns<Op, T, T, N>{in, out, rows, cols, 1, rows, lanes_x_}, stream);
    }
    TRY_OUTCOME(launch_strips(kernels::ReduceColumns<Op, T, float, N>{in, partial, rows, cols,
                                                                      parts_, part_size_, lanes_x_},
                              stream));
    return launch_strips(kernels::ReduceColumns<Op, float, T, 1>{partial, out, parts_, cols, 1,
                                                                 parts_, kernels::kMaxLanes},
                         stream);
  }

  template <class Body>
  static Outcome<void> launch_strips(const Body& body, Stream stream) {
    return launch_body(body, body.strips() * body.parts, kThreads, Body::shared_bytes(kThreads),
                       stream);
  }

  double combine(const reference::Row& row) const {
    return point_.op == RowCase::Op::kMax ? reference::max(row) : reference::sum(row);
  }

  Outcome<double> check_rows(Context& context) {
    HostRows in(context, data<void>(0, 0), point_.dtype, point_.rows, point_.cols);
    HostRows out(context, data<void>(0, 1), point_.dtype, point_.rows, 1);
    ErrorMeter meter;
    for (const std::int64_t r : sample_rows(point_.rows, point_.cols)) {
      const auto row = in.row(r);
      TRY_OUTCOME(row);
      TRY_OUTCOME(meter.add(out.row(r), {combine(*row)}));
    }
    return meter.result(tolerance(point_.dtype));
  }

  /// Runs of neighbouring columns at the two ends and in the middle, fewer of long ones.
  Outcome<double> check_columns(Context& context) {
    const std::int64_t cols = point_.rows, most = kWholeElements / point_.cols;
    const std::int64_t run = std::min(cols, std::clamp<std::int64_t>(most, 8, 64));
    ErrorMeter meter;
    for (const std::int64_t begin : {std::int64_t{0}, (cols - run) / 2, cols - run}) {
      reference::Row expected;
      TRY_OUTCOME(reduce_run(context, begin, run, expected));
      TRY_OUTCOME(
          meter.add(read_elements(context, data<void>(0, 1), point_.dtype, begin, run), expected));
    }
    return meter.result(tolerance(point_.dtype));
  }

  Outcome<void> reduce_run(Context& context, std::int64_t begin, std::int64_t run,
                           reference::Row& result) {
    const auto all =
        read_block(context, data<void>(0, 0), point_.dtype, begin, point_.rows, run, point_.cols);
    TRY_OUTCOME(all);
    for (std::int64_t c = 0; c < run; ++c) {
      reference::Row column;
      for (std::int64_t r = 0; r < point_.cols; ++r) {
        column.push_back((*all)[static_cast<std::size_t>(r * run + c)]);
      }
      result.push_back(combine(column));
    }
    return {};
  }

  RowCase point_;
  kernels::RowPlan plan_;
  bool widest_ = false;
  int lanes_x_ = 1;
  std::int64_t parts_ = 1, part_size_ = 0;
};

/// Softmax and layer norm, forward and backward: rows in, rows of the same shape out.
class NormalisingWorkload final : public BufferedWorkload {
 public:
  explicit NormalisingWorkload(const RowCase& point)
      : point_(point), plan_(kernels::plan_rows(point.cols, bytes_of(point.dtype))) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(plan_.widest, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        if (!plan_.whole_block) return launch_plan<T, kVector, true, false>(copy, stream);
        if (plan_.cached) return launch_plan<T, kVector, true, true>(copy, stream);
        return launch_plan<T, kVector, false, true>(copy, stream);
      });
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    std::vector<HostRows> tensors;
    for (const Buffer& buffer : buffers()) {
      const int number = static_cast<int>(tensors.size());
      const std::int64_t rows = is_parameter(number) ? 1 : point_.rows;
      const void* at = data<void>(0, number);
      tensors.emplace_back(context, at, buffer.dtype, rows, buffer.count / rows);
    }
    ErrorMeter meter;
    for (const std::int64_t r : sample_rows(point_.rows, point_.cols)) {
      const auto expected = expected_row(tensors, r);
      TRY_OUTCOME(expected);
      TRY_OUTCOME(meter.add(tensors[backward() ? 2 : 1].row(r), *expected));
    }
    return meter.result(tolerance(point_.dtype));
  }

 private:
  bool backward() const { return point_.pass == Pass::kBackward; }
  bool softmax() const { return point_.op == RowCase::Op::kSoftmax; }
  int first_extra() const { return backward() ? 3 : 2; }
  /// Weight or bias: one row for all.
  bool is_parameter(int buffer) const {
    return buffer == first_extra() || (!backward() && buffer == first_extra() + 1);
  }

  /// Tensors first, then: layer norm's weight, bias (forward), mean, rstd.
  std::vector<Buffer> buffers() const override {
    const std::int64_t elements = point_.rows * point_.cols;
    const bool probabilities = softmax() && backward();
    std::vector<Buffer> list = {
        Buffer::uniform(point_.dtype, elements, probabilities ? 0 : -1,
                        probabilities ? 2 / static_cast<float>(point_.cols) : 1)};
    if (backward()) list.push_back(Buffer::uniform(point_.dtype, elements));
    list.push_back(Buffer::output(point_.dtype, elements));
    if (softmax()) return list;
    list.push_back(Buffer::uniform(point_.dtype, point_.cols, 0.5F, 1.5F));
    if (!backward()) list.push_back(Buffer::uniform(point_.dtype, point_.cols));
    // Any mean and rstd do for the backward pass: its formula takes them as they are.
    list.push_back(Buffer::uniform(DType::kFloat32, point_.rows, -0.1F, 0.1F));
    list.push_back(Buffer::uniform(DType::kFloat32, point_.rows, 1.5F, 2));
    return list;
  }

  template <class T, int N, bool kCached, bool kWholeBlock>
  Outcome<void> launch_plan(int copy, Stream stream) {
    const std::int64_t rows = point_.rows, cols = point_.cols;
    const int lanes = plan_.lanes, extra = first_extra();
    T* first = data<T>(copy, 0);
    T* second = data<T>(copy, 1);
    if (softmax() && !backward()) {
      return launch_rows<kWholeBlock>(
          kernels::SoftmaxForward<T, N, kCached, kWholeBlock>{first, second, rows, cols, lanes},
          stream);
    }
    if (softmax()) {
      return launch_rows<kWholeBlock>(
          kernels::SoftmaxBackward<T, N, kCached, kWholeBlock>{first, second, data<T>(copy, 2),
                                                               rows, cols, lanes},
          stream);
    }
    const T* weight = data<T>(copy, extra);
    if (!backward()) {
      return launch_rows<kWholeBlock>(
          kernels::LayerNormForward<T, N, kCached, kWholeBlock>{
              first, weight, data<T>(copy, extra + 1), second, data<float>(copy, extra + 2),
              data<float>(copy, extra + 3), rows, cols, lanes},
          stream);
    }
    return launch_rows<kWholeBlock>(
        kernels::LayerNormBackward<T, N, kCached, kWholeBlock>{
            first, second, weight, data<float>(copy, extra + 1), data<float>(copy, extra + 2),
            data<T>(copy, 2), rows, cols, lanes},
        stream);
  }

  template <bool kWholeBlock, class Body>
  Outcome<void> launch_rows(const Body& body, Stream stream) {
    if constexpr (kWholeBlock) {
      return launch_body<512>(body, point_.rows, plan_.threads,
                              kernels::reduce_block_bytes(plan_.threads), stream);
    } else {
      return launch_groups(body, point_.rows, plan_.lanes, stream);
    }
  }

  Outcome<reference::Row> expected_row(std::vector<HostRows>& tensors, std::int64_t r) const {
    std::vector<reference::Row> rows;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto row = tensors[i].row(is_parameter(static_cast<int>(i)) ? 0 : r);
      TRY_OUTCOME(row);
      rows.push_back(std::move(*row));
    }
    if (softmax() && backward()) return reference::softmax_gradient(rows[0], rows[1]);
    if (softmax()) return reference::softmax(rows[0]);
    if (!backward()) return reference::layer_norm(rows[0], rows[2], rows[3]);
    const reference::Statistics statistics = {rows[4][0], rows[5][0]};
    return reference::layer_norm_gradient(rows[0], rows[1], rows[3], statistics);
  }

  RowCase point_;
  kernels::RowPlan plan_;
};

}  // namespace rows_cu

std::unique_ptr<Workload> make_rows(const RowCase& point) {
  if (point.op == RowCase::Op::kSum || point.op == RowCase::Op::kMax) {
    return std::make_unique<ReductionWorkload>(point);
  }
  return std::make_unique<NormalisingWorkload>(point);
}

}  // namespace kernels_bench::gpu
