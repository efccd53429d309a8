#include "open_device.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "../analytic/analytic_device.hpp"

namespace kernels_bench {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Failure> no_device(std::string message) {
  return tl::unexpected(Failure{FailureKind::kNoDevice, std::move(message)});
}

fs::path module_path(std::string_view backend) {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  return self.parent_path() / fmt::format("libkernels_bench_{}.so", backend);
}

Outcome<std::unique_ptr<Device>> open_module(std::string_view backend, int index) {
  const fs::path path = module_path(backend);
  if (!fs::exists(path)) {
    return no_device(
        fmt::format("{}: this build has no such module ({})", backend, path.filename().string()));
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) return no_device(fmt::format("{}: {}", backend, dlerror()));
  const auto version =
      reinterpret_cast<ModuleVersionFunction*>(dlsym(module, kModuleVersionSymbol));
  const auto open = reinterpret_cast<OpenDeviceFunction*>(dlsym(module, kOpenDeviceSymbol));
  if (!version || !open || version() != kModuleVersion) {
    return no_device(fmt::format("{}: {} belongs to another build of this program", backend,
                                 path.filename().string()));
  }
  Failure failure;
  std::unique_ptr<Device> device(open(index, &failure));
  if (!device) {
    failure.message = fmt::format("{}: {}", backend, failure.message);
    return tl::unexpected(std::move(failure));
  }
  return device;
}

}  // namespace

std::vector<std::string_view> backends() { return {"cuda", "hip", "analytic"}; }

Outcome<std::unique_ptr<Device>> open_device(std::string_view backend, int index) {
  if (backend == "analytic") return make_analytic_device();
  if (backend != "auto") return open_module(backend, index);
  std::string reasons;
  for (const std::string_view name : {"cuda", "hip"}) {
    auto device = open_module(name, index);
    if (device) return device;
    if (!reasons.empty()) reasons += "; ";
    reasons += device.error().message;
  }
  return no_device("no GPU to measure: " + reasons);
}

}  // namespace kernels_bench
