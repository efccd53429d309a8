#include "price/kernel_work.hpp"

/// n = rows cols elements of s bytes. A row stays on chip between its passes.
///
///   forward   FLOP 15 n (maximum, exponential ~ 10, sum, division)   read n s     written n s
///   backward  FLOP 4 n                                               read 2 n s   written n s
namespace perfmodel {

KernelWork softmax_work(std::int64_t rows, std::int64_t cols, RowPass pass, DType dtype) {
  const double n = static_cast<double>(rows) * static_cast<double>(cols);
  const double size = size_in_bytes(dtype);
  const bool forward = pass == RowPass::kForward;
  return {.family = KernelFamily::kSoftmax,
          .dtype = dtype,
          .flop = {(forward ? 15 : 4) * n},
          .bytes_read = {(forward ? 1 : 2) * n * size},
          .bytes_written = {n * size},
          .shape = RowShape{.rows = rows, .cols = cols}};
}

}  // namespace perfmodel
