#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "perfmodel/predictors/gpu.hpp"

/// Made-up measurements: literal functions of size and data sheet with a little noise, as tables in
/// the columns of the public data.
namespace perfmodel::test_support {

struct Campaign {
  unsigned seed = 1;
  double noise = 0.01;  ///< standard deviation of log(time)
  double slowness = 1;  ///< every kernel takes that many times longer
  double floor_us = 0;  ///< a call takes max(floor, dispatch + kernel)
  double dispatch_us = 0;
  double low_log2 = 14, high_log2 = 27;  ///< rows times columns
};

inline Gpu gpu_of_data(const std::string& name) {
  return *find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
}

inline std::string cell(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

/// Sum of two tensors [us]: a launch and a share of the bandwidth that grows with the bytes,
/// half of it at half a megabyte.
inline double add_us(const Gpu& gpu, double elements) {
  const double bytes = 12 * elements;
  const double share = 0.92 * bytes / (bytes + 524'288);
  return 2 + bytes / (gpu.dram_bandwidth.value * 1e-6 * share);
}

/// Product in fp32 [us]: a launch and a share of the peak that grows with the smaller side of the
/// result, half of it at 96.
inline double gemm_us(const Gpu& gpu, double m, double n, double k) {
  const double side = std::min(m, n);
  const double share = 0.85 * side / (side + 96);
  return 4 + 2 * m * n * k / (gpu.peak(DType::kFloat32, false).value * 1e-6 * share);
}

/// Sizes and noise in a fixed order, equal on every machine.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  double uniform() { return static_cast<double>(random_()) * 0x1p-32; }
  std::int64_t size(double low_log2, double high_log2) {
    return static_cast<std::int64_t>(std::exp2(low_log2 + uniform() * (high_log2 - low_log2)));
  }
  double normal() {  // Irwin-Hall
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  double measured(const Campaign& campaign, double kernel_us) {
    return std::max(campaign.floor_us, campaign.dispatch_us + campaign.slowness * kernel_us) *
           std::exp(campaign.noise * normal());
  }

 private:
  std::mt19937 random_;
};

inline const std::string kAddHead = "device,op,dtype,rows,cols,shape_set,paper_train,time_us\n";

/// `rest`: cells of shape_set and paper_train.
inline std::string add_rows(const std::string& gpu_name, int count, const Campaign& campaign = {},
                            const std::string& rest = "train,1") {
  const Gpu gpu = gpu_of_data(gpu_name);
  Draw draw(campaign.seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::int64_t cols = draw.size(6, 10);
    const double log2_cols = std::log2(static_cast<double>(cols));
    const std::int64_t rows =
        draw.size(campaign.low_log2 - log2_cols, campaign.high_log2 - log2_cols);
    const double time = draw.measured(campaign, add_us(gpu, static_cast<double>(rows * cols)));
    text += gpu_name + ",add,fp32," + std::to_string(rows) + "," + std::to_string(cols) + "," +
            rest + "," + cell(time) + "\n";
  }
  return text;
}

inline const std::string kGemmHead = "device,op,dtype,m,n,k,time_us\n";

inline std::string gemm_rows(const std::string& gpu_name, int count,
                             const Campaign& campaign = {}) {
  const Gpu gpu = gpu_of_data(gpu_name);
  Draw draw(campaign.seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::int64_t m = draw.size(6, 12), n = draw.size(6, 12), k = draw.size(7, 11);
    const double time = draw.measured(
        campaign,
        gemm_us(gpu, static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)));
    text += gpu_name + ",gemm,fp32," + std::to_string(m) + "," + std::to_string(n) + "," +
            std::to_string(k) + "," + cell(time) + "\n";
  }
  return text;
}

}  // namespace perfmodel::test_support
