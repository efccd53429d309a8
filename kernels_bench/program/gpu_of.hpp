#pragma once

#include <filesystem>
#include <string>

#include "../core/device.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace kernels_bench {

/// The data sheet of a device: by its name in `data/gpus`, else, for an undescribed GPU, the
/// driver's figures and peaks derived from them. `is_known` tells which.
struct GpuOfDevice {
  perfmodel::Gpu gpu;
  bool is_known = false;
};
GpuOfDevice gpu_of(const DeviceInfo& info, const std::filesystem::path& gpu_folder);

/// Writes a `perfmodel-gpu` file for an undescribed GPU: sizes from the driver, rates from the
/// rows of `peaks.csv` in `folder` (multiply-adds, matrix units, copies). Says so in its notes.
perfmodel::Result<void> write_gpu_file(const DeviceInfo& info, const perfmodel::Gpu& gpu,
                                       const std::filesystem::path& folder,
                                       const std::filesystem::path& file);

}  // namespace kernels_bench
