#include "price/kernel_work.hpp"

/// [batch, rows, cols] -> [batch, cols, rows]: every element is read and written once, no FLOP. The
/// shape keeps the runs of memory that are read: batch rows of `cols` elements.
namespace perfmodel {

KernelWork transpose_work(std::int64_t batch, std::int64_t rows, std::int64_t cols, DType dtype) {
  const double moved = static_cast<double>(batch) * static_cast<double>(rows) *
                       static_cast<double>(cols) * size_in_bytes(dtype);
  return {.family = KernelFamily::kTranspose,
          .dtype = dtype,
          .bytes_read = {moved},
          .bytes_written = {moved},
          .shape = RowShape{.rows = batch * rows, .cols = cols, .batch = batch}};
}

}  // namespace perfmodel
