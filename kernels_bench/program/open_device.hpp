#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../core/device.hpp"

namespace kernels_bench {

/// "cuda", "hip", "analytic".
std::vector<std::string_view> backends();

/// A GPU through the module of a backend, which is next to the program
/// (`libkernels_bench_<backend>.so`); "auto" takes the first backend that has a device. Modules
/// stay loaded until the program ends. kNoDevice names every backend that was tried and why it
/// failed.
Outcome<std::unique_ptr<Device>> open_device(std::string_view backend, int index);

}  // namespace kernels_bench
