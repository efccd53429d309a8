#include "shared_library.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace kernels_bench::gpu {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names,
                             const std::vector<std::string>& folders) {
  std::vector<std::string> paths = names;
  for (const std::string& folder : folders) {
    for (const std::string& name : names) paths.push_back(folder + "/" + name);
  }
  for (const std::string& path : paths) {
    // NODELETE: these libraries leave threads and handlers that run at exit.
    handle_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    if (handle_) {
      problem_.clear();
      return;
    }
    if (problem_.empty()) problem_ = dlerror();
  }
}

void SharedLibrary::Closer::operator()(void* handle) const { dlclose(handle); }

void* SharedLibrary::find_symbol(const char* name) {
  void* const symbol = handle_ ? dlsym(handle_.get(), name) : nullptr;
  if (symbol == nullptr && problem_.empty()) problem_ = std::string("it has no ") + name;
  return symbol;
}

std::vector<std::string> library_folders(const std::vector<const char*>& variables,
                                         const std::string& below, const std::string& fixed) {
  std::vector<std::string> folders;
  for (const char* variable : variables) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') folders.push_back(value + below);
  }
  folders.push_back(fixed);
  return folders;
}

}  // namespace kernels_bench::gpu
