#include "../../kernels/hashed_product.hpp"

#include <algorithm>
#include <cmath>

#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace hashed_product_cu {

/// Buffers: x [m, k], the gradient of y [m, n], the array, y.
class HashedProductWorkload final : public BufferedWorkload {
 public:
  explicit HashedProductWorkload(const HashedProductCase& point) : point_(point) {}

  Outcome<void> launch(int copy, Stream stream) override {
    return point_.by_elements ? launch_as<true>(copy, stream) : launch_as<false>(copy, stream);
  }

  Outcome<double> check(Context& context) override {
    return point_.weight_gradient ? check_gradient(context) : check_product(context);
  }

 private:
  using Tiles = kernels::HashedTiles<>;

  std::vector<Buffer> buffers() const override {
    Buffer array = Buffer::uniform(DType::kFloat32, point_.elements);
    array.shared = array.bytes() > 2 * device_limits().l2_bytes;
    array.touched = std::min(array.bytes(), point_.k * point_.n * 4);
    return {Buffer::uniform(DType::kFloat32, point_.m * point_.k),
            Buffer::uniform(DType::kFloat32, point_.weight_gradient ? point_.m * point_.n : 1),
            array,
            Buffer::output(DType::kFloat32, point_.weight_gradient ? 1 : point_.m * point_.n)};
  }

  template <bool kByElements>
  Outcome<void> launch_as(int copy, Stream stream) {
    const kernels::HashedPlaces places{point_.elements};
    if (point_.weight_gradient) {
      using Body = kernels::HashedWeightGradient<kByElements>;
      const Body body{data<float>(copy, 0),
                      data<float>(copy, 1),
                      data<float>(copy, 2),
                      point_.m,
                      point_.n,
                      point_.k,
                      places};
      return launch_body<Body::kThreads>(body, body.tiles(), Body::kThreads, Body::kSharedBytes,
                                         stream);
    }
    using Body = kernels::HashedProduct<kByElements>;
    const Body body{data<float>(copy, 0),
                    data<float>(copy, 2),
                    data<float>(copy, 3),
                    point_.m,
                    point_.n,
                    point_.k,
                    places};
    return launch_body<Body::kThreads>(body, body.tiles(), Body::kThreads, Body::kSharedBytes,
                                       stream);
  }

  std::int64_t place(std::int64_t k, std::int64_t n) const {
    const kernels::HashedPlaces places{point_.elements};
    if (point_.by_elements) return places(k, n, 1);
    constexpr std::int64_t kRun = std::int64_t{Tiles::kTileK} * Tiles::kTileN;
    return places(k / Tiles::kTileK, n / Tiles::kTileN, kRun) + k % Tiles::kTileK * Tiles::kTileN +
           n % Tiles::kTileN;
  }

  /// Some rows of y, and some columns of them: each weight of a column is looked up once.
  Outcome<double> check_product(Context& context) {
    TRY_OUTCOME(launch(0, context.stream()));
    const auto array =
        read_elements(context, data<void>(0, 2), DType::kFloat32, 0, point_.elements);
    TRY_OUTCOME(array);
    HostRows x(context, data<void>(0, 0), DType::kFloat32, point_.m, point_.k);
    HostRows y(context, data<void>(0, 3), DType::kFloat32, point_.m, point_.n);
    ErrorMeter meter;
    for (const std::int64_t r : spread_rows(point_.m, 8)) {
      const auto left = x.row(r);
      TRY_OUTCOME(left);
      const auto made = y.row(r);
      TRY_OUTCOME(made);
      for (const std::int64_t c : spread_rows(point_.n, 64)) {
        double sum = 0;
        for (std::int64_t i = 0; i < point_.k; ++i) {
          sum += (*left)[static_cast<std::size_t>(i)] *
                 (*array)[static_cast<std::size_t>(place(i, c))];
        }
        meter.add((*made)[static_cast<std::size_t>(c)], sum);
      }
    }
    return meter.result(tolerance(DType::kFloat32) * std::sqrt(static_cast<double>(point_.k)));
  }

  /// Compares the sum added to the array with the sum of the gradient: each element of the gradient
  /// is added once, somewhere.
  Outcome<double> check_gradient(Context& context) {
    const auto before =
        read_elements(context, data<void>(0, 2), DType::kFloat32, 0, point_.elements);
    TRY_OUTCOME(before);
    TRY_OUTCOME(launch(0, context.stream()));
    const auto after =
        read_elements(context, data<void>(0, 2), DType::kFloat32, 0, point_.elements);
    TRY_OUTCOME(after);
    double added = 0, expected = 0, size = 0;
    for (std::size_t i = 0; i < after->size(); ++i) added += (*after)[i] - (*before)[i];
    HostRows x(context, data<void>(0, 0), DType::kFloat32, point_.m, point_.k);
    HostRows gradient(context, data<void>(0, 1), DType::kFloat32, point_.m, point_.n);
    for (std::int64_t r = 0; r < point_.m; ++r) {
      const auto left = x.row(r);
      TRY_OUTCOME(left);
      const auto right = gradient.row(r);
      TRY_OUTCOME(right);
      double of_x = 0, of_gradient = 0, x_size = 0, gradient_size = 0;
      for (const double value : *left) of_x += value, x_size += std::abs(value);
      for (const double value : *right) of_gradient += value, gradient_size += std::abs(value);
      expected += of_x * of_gradient;
      size += x_size * gradient_size;
    }
    ErrorMeter meter;
    meter.add(added / size, expected / size);
    meter.add(1, 1);  // errors are relative to the sum of magnitudes
    return meter.result(tolerance(DType::kFloat32) * 8);
  }

  HashedProductCase point_;
};

}  // namespace hashed_product_cu

std::unique_ptr<Workload> make_hashed_product(const HashedProductCase& point) {
  return std::make_unique<HashedProductWorkload>(point);
}

}  // namespace kernels_bench::gpu
