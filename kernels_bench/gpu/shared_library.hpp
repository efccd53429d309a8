#pragma once

#include <memory>
#include <string>
#include <vector>

namespace kernels_bench::gpu {

/// A library that is looked for at run time.
class SharedLibrary {
 public:
  /// Tries the names in the loader's own path (LD_LIBRARY_PATH), then in `folders`.
  SharedLibrary(const std::vector<std::string>& names,
                const std::vector<std::string>& folders = {});

  /// Empty when it is loaded and has all functions asked for so far.
  const std::string& problem() const { return problem_; }
  bool usable() const { return problem_.empty(); }

  /// False, and noted as the problem, where there is no such function.
  template <class Function>
  bool find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(find_symbol(name));
    return function != nullptr;
  }

 private:
  void* find_symbol(const char* name);

  struct Closer {
    void operator()(void* handle) const;
  };
  std::unique_ptr<void, Closer> handle_;
  std::string problem_;
};

/// Folders of the variables that are set, `below` added, then `fixed`.
std::vector<std::string> library_folders(const std::vector<const char*>& variables,
                                         const std::string& below, const std::string& fixed);

}  // namespace kernels_bench::gpu
