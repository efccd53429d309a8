#include "reduction_parts.hpp"

#include <algorithm>

namespace perfmodel {

std::int64_t parts_of_reduction(const LoopKernel& kernel) {
  constexpr std::int64_t kMultiprocessors = 132, kThreadsPerMultiprocessor = 2048;
  constexpr std::int64_t kLeast = 32, kPerThread = 4, kResultsPerBlock = 128, kLongRow = 8192;
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  if (kernel.kind == LoopKind::kRows) {
    if (rows >= 2 * kMultiprocessors || columns <= kLongRow) return 1;
    return (columns + kLongRow - 1) / kLongRow;
  }
  if (kernel.kind != LoopKind::kColumns) return 1;
  if (rows >= 64 * kMultiprocessors || columns <= kLeast) return 1;
  std::int64_t split = kLeast;
  if (rows * columns >= kLeast * kMultiprocessors * kThreadsPerMultiprocessor) {
    const std::int64_t blocks = kMultiprocessors * kThreadsPerMultiprocessor / 256;
    const std::int64_t of_rows = (rows + kResultsPerBlock - 1) / kResultsPerBlock;
    const std::int64_t target = (blocks + of_rows - 1) / of_rows;
    split = std::max(kLeast, (columns + kPerThread * target - 1) / (kPerThread * target));
  }
  return std::max<std::int64_t>(1, (columns + kPerThread * split - 1) / (kPerThread * split));
}

}  // namespace perfmodel
