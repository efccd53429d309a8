#include "price/kernel_work.hpp"

/// FLOP rows cols, read rows cols s, written rows s.
namespace perfmodel {

KernelWork reduction_work(std::int64_t rows, std::int64_t cols, DType dtype, bool is_strided) {
  const double n = static_cast<double>(rows) * static_cast<double>(cols);
  const double size = size_in_bytes(dtype);
  return {.family = KernelFamily::kReduction,
          .dtype = dtype,
          .flop = {n},
          .bytes_read = {n * size},
          .bytes_written = {static_cast<double>(rows) * size},
          .shape = RowShape{.rows = rows, .cols = cols, .is_strided = is_strided}};
}

}  // namespace perfmodel
