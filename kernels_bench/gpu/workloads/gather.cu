#include "../../kernels/gather.hpp"

#include <cmath>

#include "buffers.hpp"
#include "launch.hpp"
#include "row_sums.hpp"

namespace kernels_bench::gpu {
inline namespace gather_cu {

/// Buffers: table, indices, block.
class GatherWorkload final : public BufferedWorkload {
 public:
  explicit GatherWorkload(const GatherCase& point) : point_(point) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return point_.scatter_add ? launch_scatter(copy, stream) : launch_gather(copy, stream);
  }

  Outcome<double> check(Context& context) override {
    return point_.scatter_add ? check_scatter(context) : check_gather(context);
  }

 private:
  std::vector<Buffer> buffers() const override {
    Buffer table = Buffer::uniform(point_.dtype, point_.table_rows * point_.cols);
    table.shared = table.bytes() > 2 * device_limits().l2_bytes;
    if (table.shared) {
      table.touched = std::min(table.bytes(), point_.count * point_.cols * bytes_of(point_.dtype));
    }
    const std::int64_t elements = point_.count * point_.cols;
    return {table, Buffer::indices(point_.count, point_.table_rows),
            point_.scatter_add ? Buffer::uniform(point_.dtype, elements)
                               : Buffer::output(point_.dtype, elements)};
  }

  Outcome<void> launch_gather(int copy, Stream stream) {
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(point_.cols % kernels::kWidest<T> == 0, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        const std::int64_t vectors = point_.cols / kVector;
        return launch_items(
            kernels::Gather<T, kVector>{data<T>(copy, 0), data<std::int64_t>(copy, 1),
                                        data<T>(copy, 2), point_.count, vectors,
                                        kernels::Divider(vectors, point_.count * vectors)},
            stream);
      });
    });
  }

  Outcome<void> launch_scatter(int copy, Stream stream) {
    if (point_.dtype != DType::kFloat32) {
      return tl::unexpected(Failure{FailureKind::kUnsupported, "scatter-add is of fp32"});
    }
    return launch_items(
        kernels::ScatterAdd{data<float>(copy, 2), data<std::int64_t>(copy, 1), data<float>(copy, 0),
                            point_.count, point_.cols,
                            kernels::Divider(point_.cols, point_.count * point_.cols)},
        stream);
  }

  Outcome<double> check_gather(Context& context) {
    TRY_OUTCOME(launch(0, context.stream()));
    std::vector<std::int64_t> indices(static_cast<std::size_t>(point_.count));
    TRY_OUTCOME(context.download(indices.data(), data<void>(0, 1), point_.count * 8));
    HostRows table(context, data<void>(0, 0), point_.dtype, point_.table_rows, point_.cols);
    HostRows out(context, data<void>(0, 2), point_.dtype, point_.count, point_.cols);
    // Downloads only some rows of a large table, one by one.
    const bool small = point_.table_rows * point_.cols <= kWholeElements;
    ErrorMeter meter;
    for (const std::int64_t i :
         small ? sample_rows(point_.count, point_.cols) : spread_rows(point_.count, 128)) {
      const auto expected = table.row(indices[static_cast<std::size_t>(i)]);
      TRY_OUTCOME(expected);
      TRY_OUTCOME(meter.add(out.row(i), *expected));
    }
    return meter.result(0);
  }

  /// As the gradient of bags of one lookup each.
  Outcome<double> check_scatter(Context& context) {
    const kernels::EmbeddingShape shape(1, point_.table_rows, point_.count, 1, point_.cols);
    const auto updates =
        sum_sampled_rows(context, data<std::int64_t>(0, 1), data<float>(0, 2), shape);
    TRY_OUTCOME(updates);
    std::vector<reference::Row> expected = updates->sums;
    std::int64_t most = 1;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      const auto old = read_elements(context, data<void>(0, 0), DType::kFloat32,
                                     updates->rows[s] * point_.cols, point_.cols);
      TRY_OUTCOME(old);
      for (std::size_t d = 0; d < old->size(); ++d) expected[s][d] += (*old)[d];
      most = std::max(most, updates->lookups[s]);
    }
    TRY_OUTCOME(launch(0, context.stream()));
    ErrorMeter meter;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      TRY_OUTCOME(meter.add(read_elements(context, data<void>(0, 0), DType::kFloat32,
                                          updates->rows[s] * point_.cols, point_.cols),
                            expected[s]));
    }
    // Every add rounds once.
    return meter.result(tolerance(point_.dtype) * std::sqrt(static_cast<double>(most)));
  }

  GatherCase point_;
};

}  // namespace gather_cu

std::unique_ptr<Workload> make_gather(const GatherCase& point) {
  return std::make_unique<GatherWorkload>(point);
}

}  // namespace kernels_bench::gpu
