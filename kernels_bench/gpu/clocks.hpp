#pragma once

#include <memory>
#include <string>

#include "../core/device.hpp"

namespace kernels_bench::gpu {

/// Reads a GPU's current clocks. Never sets anything.
class ClockReader {
 public:
  virtual ~ClockReader() = default;
  virtual Clocks read() = 0;
  /// The driver's own version; empty where unknown.
  virtual std::string driver_version() = 0;
};

/// By the bus address ("0000:65:00.0"): NVML and CUDA number GPUs differently. Never null; reads
/// NaN where the driver does not say.
std::unique_ptr<ClockReader> make_clock_reader(const std::string& pci_address);

}  // namespace kernels_bench::gpu
