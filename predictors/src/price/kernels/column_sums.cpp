#include "column_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "launch_sizes.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

constexpr double kRoundUs = 0.45, kCachedRoundUs = 0.22, kSplitUs = 4, kPartUs = 0.25;
constexpr double kCachedShare = 0.01;  ///< share of L2
constexpr std::int64_t kMostThreads = 512, kWarp = 32, kRowsPerRound = 4;
constexpr std::int64_t kFewestValues = 16, kMostValues = 256;  ///< per thread

struct Launch {
  std::int64_t blocks, threads, threads_y;
  std::int64_t values;  ///< summed by a thread
  std::int64_t splits;  ///< blocks that share a column
};

Launch launch_of(std::int64_t columns, std::int64_t rows, const Gpu& gpu) {
  const std::int64_t vector = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  const std::int64_t wide = columns / vector, most = kMostThreads / vector;
  const std::int64_t y =
      std::min(power_of_two_up_to(rows, most), most / power_of_two_up_to(wide, kWarp));
  const std::int64_t x = std::min(power_of_two_up_to(wide, most), most / y);
  Launch made{quotient_up(wide, x), x * y, y, rows, 1};
  if (rows < std::min(y * kFewestValues, kMostValues)) {  // each thread has columns of its own
    made.blocks = quotient_up(wide, x * y);
    return made;
  }
  made.values = quotient_up(rows, y);
  const std::int64_t target =
      gpu.num_sms * std::max<std::int64_t>(1, gpu.max_threads_per_sm / made.threads);
  if (made.values < kMostValues || made.blocks > target) return made;
  made.splits =
      std::max(std::min(quotient_up(target, made.blocks), quotient_up(made.values, kFewestValues)),
               quotient_up(made.values, kMostValues));
  made.blocks *= made.splits;
  made.values = quotient_up(made.values, made.splits);
  return made;
}

}  // namespace

double column_sum_latency_us(const RowShape& shape, double bytes, const Gpu& gpu) {
  const Launch launch = launch_of(shape.rows, shape.cols, gpu);
  const double at_once = static_cast<double>(gpu.num_sms) * gpu.max_threads_per_sm / launch.threads;
  const double waves = std::max(1.0, launch.blocks / at_once);
  const double round = bytes < kCachedShare * gpu.l2_size.value ? kCachedRoundUs : kRoundUs;
  const double sums = waves * quotient_up(launch.values, kRowsPerRound) * round;
  const double parts =
      launch.splits > 1 ? kSplitUs + kPartUs * quotient_up(launch.splits, launch.threads_y) : 0;
  return terms::empty_kernel_us(gpu) + sums + parts;
}

}  // namespace perfmodel::kernels
