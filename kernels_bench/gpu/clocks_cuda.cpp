#include "clocks.hpp"
#include "shared_library.hpp"

namespace kernels_bench::gpu {
namespace {

/// The few functions of NVML that are needed, whose header is not part of every toolkit. Binary
/// interface as documented in the NVML API reference; 0 is success everywhere.
struct Nvml {
  using Handle = struct nvmlDevice_st*;
  static constexpr unsigned kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

  SharedLibrary library{{"libnvidia-ml.so.1"}};
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_bus)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, unsigned, unsigned*) = nullptr;
  int (*temperature)(Handle, unsigned, unsigned*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;

  Nvml() {
    library.find("nvmlInit_v2", init);
    library.find("nvmlShutdown", shutdown);
    library.find("nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus);
    library.find("nvmlDeviceGetClockInfo", clock);
    library.find("nvmlDeviceGetTemperature", temperature);
    library.find("nvmlDeviceGetPowerUsage", power);
    library.find("nvmlSystemGetDriverVersion", driver_version);
  }
};

class NvmlClockReader final : public ClockReader {
 public:
  explicit NvmlClockReader(const std::string& pci_address) {
    if (!nvml_.library.usable() || nvml_.init() != 0) return;
    started_ = true;
    if (nvml_.handle_by_bus(pci_address.c_str(), &device_) != 0) device_ = nullptr;
  }
  ~NvmlClockReader() override {
    if (started_) nvml_.shutdown();
  }
  NvmlClockReader(const NvmlClockReader&) = delete;
  NvmlClockReader& operator=(const NvmlClockReader&) = delete;

  Clocks read() override {
    Clocks clocks;
    if (device_ == nullptr) return clocks;
    unsigned value = 0;
    if (nvml_.clock(device_, Nvml::kClockSm, &value) == 0) clocks.sm_mhz = value;
    if (nvml_.clock(device_, Nvml::kClockMemory, &value) == 0) clocks.memory_mhz = value;
    if (nvml_.temperature(device_, Nvml::kTemperatureGpu, &value) == 0)
      clocks.temperature_c = value;
    if (nvml_.power(device_, &value) == 0) clocks.power_w = value / 1000.0;  // mW
    return clocks;
  }

  std::string driver_version() override {
    char version[96] = "";  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
    if (!started_ || nvml_.driver_version(version, sizeof version) != 0) return {};
    return version;
  }

 private:
  Nvml nvml_;
  bool started_ = false;
  Nvml::Handle device_ = nullptr;
};

}  // namespace

std::unique_ptr<ClockReader> make_clock_reader(const std::string& pci_address) {
  return std::make_unique<NvmlClockReader>(pci_address);
}

}  // namespace kernels_bench::gpu
