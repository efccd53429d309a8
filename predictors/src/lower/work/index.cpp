#include "price/kernel_work.hpp"

/// `rows` rows of `cols` elements of s bytes, found by 8-byte indices. The table itself is not read
/// as a whole.
///
///   gather        FLOP 0           read rows (cols s + 8)     written rows cols s
///   scatter-add   FLOP rows cols   read rows (2 cols s + 8)   written rows cols s
namespace perfmodel {
namespace {

constexpr double kIndexBytes = 8;

KernelWork index_work(const RowShape& shape, double reads, double flop, DType dtype) {
  const double r = static_cast<double>(shape.rows);
  const double moved = r * static_cast<double>(shape.cols) * size_in_bytes(dtype);
  return {.family = KernelFamily::kIndex,
          .dtype = dtype,
          .flop = {flop},
          .bytes_read = {reads * moved + r * kIndexBytes},
          .bytes_written = {moved},
          .shape = shape};
}

}  // namespace

KernelWork gather_work(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t table_rows) {
  return index_work({.rows = rows, .cols = cols, .table_rows = table_rows}, 1, 0, dtype);
}

KernelWork scatter_add_work(std::int64_t rows, std::int64_t cols, DType dtype,
                            std::int64_t table_rows) {
  return index_work(
      {.rows = rows, .cols = cols, .table_rows = table_rows, .access = RowAccess::kAdd}, 2,
      static_cast<double>(rows) * static_cast<double>(cols), dtype);
}

}  // namespace perfmodel
