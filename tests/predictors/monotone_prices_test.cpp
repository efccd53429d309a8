// A price never falls when work grows: sweeps over size by family, type, GPU and alignment, priced
// as `predict` does by default. What may fall has a name here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "perfmodel/predictors/detail/learned_models.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace monotone_prices_test {

namespace fs = std::filesystem;

const fs::path& data() {
  static const fs::path folder = fs::path(PERFMODEL_SOURCE_DIR) / "data";
  return folder;
}

const LearnedModels& models() {
  static const LearnedModels read = LearnedModels::open(data() / "models").value();
  return read;
}

// Sizes from `from` over `decades`, in steps of a seventh: all multiples of `alignment`, or all
// odd.
std::vector<std::int64_t> sizes(std::int64_t from, double decades, std::int64_t alignment) {
  std::vector<std::int64_t> made;
  const double end = static_cast<double>(from) * std::pow(10, decades);
  for (double size = static_cast<double>(from); size <= end; size *= 8.0 / 7) {
    const std::int64_t next =
        std::max<std::int64_t>(1, std::llround(size / static_cast<double>(alignment))) * alignment;
    const std::int64_t alike = alignment == 1 ? next | 1 : next;
    if (made.empty() || alike > made.back()) made.push_back(alike);
  }
  return made;
}

struct Curve {
  std::string name;
  std::vector<KernelWork> work;
};

using Make = std::function<KernelWork(std::int64_t size)>;

Curve curve(std::string name, const std::vector<std::int64_t>& along, const Make& make) {
  Curve made{.name = std::move(name)};
  for (const std::int64_t size : along) made.work.push_back(make(size));
  return made;
}

constexpr DType kVectorTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

std::vector<Curve> stream_curves(std::int64_t alignment) {
  std::vector<Curve> curves;
  const auto elements = sizes(1000, 6, alignment);
  for (const DType dtype : kVectorTypes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kBroadcast, Layout::kStrided,
                                Layout::kTransposed, Layout::kMixedTypes}) {
      for (const double inputs : {1.0, 2.0}) {
        for (const double flop : {1.0, 20.0}) {
          curves.push_back(
              curve("elementwise " + std::string(to_string(layout)), elements, [&](std::int64_t n) {
                auto work = elementwise_work(static_cast<double>(n), inputs, flop, dtype);
                work.layout = layout;
                return work;
              }));
        }
      }
    }
    for (const RowPass pass : {RowPass::kForward, RowPass::kBackward}) {
      curves.push_back(curve("dropout", elements, [&](std::int64_t n) {
        return dropout_work(static_cast<double>(n), pass, dtype);
      }));
    }
  }
  return curves;
}

using MakeRows = std::function<KernelWork(std::int64_t rows, std::int64_t cols)>;

void add_rows(std::vector<Curve>& curves, const std::string& name, std::int64_t alignment,
              const MakeRows& make) {
  for (const std::int64_t cols : {64, 1000, 4096, 50257}) {
    curves.push_back(curve(name + " along rows", sizes(1, 4.5, 1),
                           [&](std::int64_t rows) { return make(rows, cols); }));
  }
  for (const std::int64_t rows : {16, 2048, 65536}) {
    curves.push_back(curve(name + " along columns", sizes(16, 4, alignment),
                           [&](std::int64_t cols) { return make(rows, cols); }));
  }
}

std::vector<Curve> row_curves(std::int64_t alignment) {
  std::vector<Curve> curves;
  for (const DType dtype : kVectorTypes) {
    for (const RowPass pass : {RowPass::kForward, RowPass::kBackward}) {
      for (const bool is_log : {false, true}) {
        add_rows(curves, is_log ? "log_softmax" : "softmax", alignment, [&](auto rows, auto cols) {
          auto work = softmax_work(rows, cols, pass, dtype);
          std::get<RowShape>(work.shape).is_log = is_log;
          return work;
        });
      }
      for (const bool is_rms : {false, true}) {
        add_rows(curves, is_rms ? "rms norm" : "layer norm", alignment, [&](auto rows, auto cols) {
          auto work = layer_norm_work(rows, cols, pass, dtype);
          std::get<RowShape>(work.shape).is_rms = is_rms;
          return work;
        });
      }
      for (const bool is_cudnn : {false, true}) {
        if (is_cudnn && dtype == DType::kBFloat16) continue;
        for (const bool is_channels_last : {false, true}) {
          add_rows(curves, "batch norm", alignment, [&](auto rows, auto cols) {
            auto work = batch_norm_work(rows, cols, pass, dtype);
            std::get<RowShape>(work.shape).is_cudnn = is_cudnn;
            std::get<RowShape>(work.shape).is_channels_last = is_channels_last;
            return work;
          });
        }
      }
    }
    for (const bool is_strided : {false, true}) {
      add_rows(curves, is_strided ? "sum along columns" : "sum", alignment,
               [&](auto rows, auto cols) { return reduction_work(rows, cols, dtype, is_strided); });
    }
  }
  return curves;
}

struct Arithmetic {
  DType dtype;
  bool matrix_units;
};
constexpr Arithmetic kArithmetics[] = {{DType::kFloat32, false},
                                       {DType::kFloat32, true},
                                       {DType::kBFloat16, true},
                                       {DType::kFloat16, true}};

std::vector<Curve> product_curves(std::int64_t alignment) {
  std::vector<Curve> curves;
  for (const Arithmetic& arithmetic : kArithmetics) {
    const DType dtype = arithmetic.dtype;
    const bool units = arithmetic.matrix_units;
    for (const auto& [a, b] : {std::pair(false, false), {false, true}, {true, false}}) {
      const auto product = [&, a = a, b = b](std::int64_t m, std::int64_t n, std::int64_t k) {
        return gemm_work({.m = m, .n = n, .k = k, .a_transposed = a, .b_transposed = b}, dtype,
                         units);
      };
      const auto along = sizes(16, 3.5, alignment);
      for (const std::int64_t side : {1024, 4096}) {
        curves.push_back(curve("product", along, [&](auto m) { return product(m, side, side); }));
        curves.push_back(curve("product", along, [&](auto n) { return product(side, n, side); }));
        curves.push_back(curve("product", along, [&](auto k) { return product(side, side, k); }));
      }
      curves.push_back(curve("batched product", sizes(1, 3.5, 1), [&](std::int64_t batch) {
        return gemm_work({.batch = batch, .m = 384, .n = 384, .k = 64}, dtype, units);
      }));
    }
  }
  return curves;
}

std::vector<Curve> convolution_curves(std::int64_t alignment) {
  using Pass = ConvolutionShape::Pass;
  std::vector<Curve> curves;
  for (const Arithmetic& arithmetic : kArithmetics) {
    const DType dtype = arithmetic.dtype;
    const bool units = arithmetic.matrix_units;
    for (const Pass pass : {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient}) {
      for (const bool channels_last : {false, true}) {
        for (const std::int64_t filter : {1, 3}) {
          for (const std::int64_t stride : {1, 2}) {
            const auto make = [&](std::int64_t n, std::int64_t c, std::int64_t k, std::int64_t h) {
              const std::int64_t p = convolution_output(h, filter, filter / 2, stride);
              return convolution_work({.pass = pass,
                                       .n = n,
                                       .c = c,
                                       .h = h,
                                       .w = h,
                                       .k = k,
                                       .r = filter,
                                       .s = filter,
                                       .p = p,
                                       .q = p,
                                       .stride = stride,
                                       .channels_last = channels_last},
                                      dtype, units);
            };
            const auto channels = sizes(16, 2, alignment);
            curves.push_back(curve("convolution along batch", sizes(1, 3, 1),
                                   [&](auto n) { return make(n, 128, 128, 28); }));
            curves.push_back(curve("convolution along channels in", channels,
                                   [&](auto c) { return make(32, c, 128, 28); }));
            curves.push_back(curve("convolution along channels out", channels,
                                   [&](auto k) { return make(32, 128, k, 28); }));
          }
        }
      }
    }
  }
  return curves;
}

// The deepest fall of a price below one of less work, by the name of the curve.
std::map<std::string, double> falls(const Gpu& gpu, const std::vector<Curve>& curves) {
  std::map<std::string, double> deepest;
  for (const Curve& c : curves) {
    std::vector<Price> prices(c.work.size());
    models().models().price_many(c.work, gpu, prices);
    double highest = 0;
    for (const Price& price : prices) {
      const double us = price.time.count();
      highest = std::max(highest, us);
      double& fall = deepest[c.name];
      fall = std::max(fall, 1 - us / highest);
    }
  }
  return deepest;
}

constexpr double kMost = 0.03;

void expect_no_fall(const Gpu& gpu, const std::vector<Curve>& curves,
                    const std::map<std::string, double>& named = {}) {
  for (const auto& [name, fall] : falls(gpu, curves)) {
    const auto limit = named.find(name);
    EXPECT_LE(fall, limit == named.end() ? kMost : limit->second) << name << " on " << gpu.name;
  }
}

Gpu gpu(const std::string& name) { return find_gpu(name, data() / "gpus").value(); }

class MeasuredBoards : public ::testing::TestWithParam<std::string> {};

// Sums of longer or more columns take down to a fifth of the time where blocks begin to share a
// column (1,600 columns of bf16 on an H100: 30.5 us for 902 rows, 12.0 for 2,272).
TEST_P(MeasuredBoards, VectorKernelsNeverFall) {
  for (const std::int64_t alignment : {1, 8}) {
    expect_no_fall(gpu(GetParam()), stream_curves(alignment));
    expect_no_fall(
        gpu(GetParam()), row_curves(alignment),
        {{"sum along columns along rows", 0.7}, {"sum along columns along columns", 0.85}});
  }
}

TEST_P(MeasuredBoards, ProductsAndConvolutionsNeverFall) {
  expect_no_fall(gpu(GetParam()), product_curves(8));
  expect_no_fall(gpu(GetParam()), convolution_curves(8));
}

INSTANTIATE_TEST_SUITE_P(Prices, MeasuredBoards,
                         ::testing::Values("h100-sxm-80gb", "h200-sxm-141gb"),
                         [](const auto& info) { return info.param.substr(0, 4); });

}  // namespace monotone_prices_test
}  // namespace perfmodel
