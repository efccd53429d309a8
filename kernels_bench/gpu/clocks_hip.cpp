#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "clocks.hpp"

namespace kernels_bench::gpu {
namespace {

namespace fs = std::filesystem;

/// The amdgpu driver's files ("GPU sysfs" in the Linux kernel's documentation), which ROCm SMI
/// reads as well. Not through that library: its structures changed between releases.
class SysfsClockReader final : public ClockReader {
 public:
  explicit SysfsClockReader(std::string pci_address) {
    std::transform(pci_address.begin(), pci_address.end(), pci_address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::error_code error;
    const fs::path folder = fs::path("/sys/bus/pci/devices") / pci_address / "hwmon";
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      sensors_ = it->path();
    }
  }

  Clocks read() override {
    Clocks clocks;
    clocks.sm_mhz = value("freq1_input") / 1e6;      // Hz
    clocks.memory_mhz = value("freq2_input") / 1e6;  // Hz
    clocks.temperature_c = value("temp1_input") / 1e3;
    clocks.power_w = value("power1_average") / 1e6;  // some GPUs have the one, some the other
    if (clocks.power_w != clocks.power_w) clocks.power_w = value("power1_input") / 1e6;
    return clocks;
  }

  std::string driver_version() override {
    std::ifstream file("/sys/module/amdgpu/version");  // absent where the kernel's own is used
    std::string version;
    file >> version;
    return version;
  }

 private:
  double value(const char* name) const {
    double number = 0;
    std::ifstream file(sensors_ / name);
    return !sensors_.empty() && file >> number ? number : std::numeric_limits<double>::quiet_NaN();
  }

  fs::path sensors_;
};

}  // namespace

std::unique_ptr<ClockReader> make_clock_reader(const std::string& pci_address) {
  return std::make_unique<SysfsClockReader>(pci_address);
}

}  // namespace kernels_bench::gpu
