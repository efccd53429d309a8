#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "cases.hpp"

/// The interface of a GPU to the program. Modules (CUDA, HIP) and the analytic device implement it.
namespace kernels_bench {

enum class FailureKind : std::uint8_t {
  kNoDevice,        ///< no driver, no GPU, or no such number
  kOutOfMemory,     ///< this case does not fit; others may
  kMissingLibrary,  ///< cuBLAS or its like is not there
  kUnsupported,     ///< device or library cannot do this case
  kWrongResult,     ///< differs from the reference, or NaN
  kDevice,          ///< the device reported an error; nothing more can be measured
};

struct Failure {
  FailureKind kind = FailureKind::kDevice;
  std::string message;  ///< one line
};

template <class T>
using Outcome = tl::expected<T, Failure>;

struct LibraryInfo {
  std::string name;     ///< "cuBLAS"
  std::string version;  ///< empty: absent
  std::string problem;  ///< why it is absent
};

struct DeviceInfo {
  std::string name;    ///< as the driver says: "NVIDIA H200"
  std::string vendor;  ///< nvidia, amd, analytic
  std::string target;  ///< sm_90, gfx90a
  std::string driver, runtime;
  std::vector<LibraryInfo> libraries;
  std::int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  int num_sms = 0, max_threads_per_sm = 0, warp_size = 0, shared_memory_per_sm = 0;
  double clock_mhz = 0, memory_clock_mhz = 0;  ///< highest; 0: unknown
  int memory_bus_bits = 0;
};

/// Current clocks of the device; NaN if the driver does not say.
struct Clocks {
  double sm_mhz = std::numeric_limits<double>::quiet_NaN();
  double memory_mhz = std::numeric_limits<double>::quiet_NaN();
  double temperature_c = std::numeric_limits<double>::quiet_NaN();
  double power_w = std::numeric_limits<double>::quiet_NaN();
};

/// Repetitions = clamp(seconds / time, min, max), after one warm-up and the check.
struct MeasureOptions {
  double seconds = 0.1;
  int min_repetitions = 3, max_repetitions = 30;
  bool check = true;     ///< compare the output with a reference once
  bool warm_l2 = false;  ///< on purpose: the same buffers again and again
  std::uint64_t seed = 1;
};

struct Measurement {
  std::vector<double> times_us;  ///< one per repetition, device time unless the case says host
  double max_error = std::numeric_limits<double>::quiet_NaN();  ///< error of the check, relative to
                                                                ///< the largest reference value
  std::string kernel = {};  ///< algorithm or library call, where known
};

/// One GPU. For one thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Clocks clocks() = 0;

  /// Allocates, fills with random data (never zeros), checks, warms up and times; frees everything.
  virtual Outcome<Measurement> measure(const Case& point, const MeasureOptions& options) = 0;
};

/// Modules export these two. The version guards against a module of another build.
inline constexpr int kModuleVersion = 1;
using ModuleVersionFunction = int();
/// Null with `failure` filled in where the device cannot be opened.
using OpenDeviceFunction = Device*(int index, Failure* failure);
inline constexpr const char* kModuleVersionSymbol = "kernels_bench_module_version";
inline constexpr const char* kOpenDeviceSymbol = "kernels_bench_open_device";

}  // namespace kernels_bench
