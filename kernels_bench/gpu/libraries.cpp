#include "libraries.hpp"

#include <limits>

namespace kernels_bench::gpu {

Outcome<void> check_sizes(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) {
    if (size >= 1 && size <= std::numeric_limits<int>::max()) continue;
    return tl::unexpected(Failure{FailureKind::kUnsupported, "a size of " + std::to_string(size) +
                                                                 ", expected 1 to 2147483647"});
  }
  return {};
}

Failure missing(const LibraryInfo& info) {
  return {FailureKind::kMissingLibrary, info.name + ": " + info.problem};
}

}  // namespace kernels_bench::gpu
