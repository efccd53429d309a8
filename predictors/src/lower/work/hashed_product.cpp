#include <algorithm>

#include "price/kernel_work.hpp"

/// A linear layer with a hashed weight of k x n elements in an array of S; s bytes each:
///
///                     read                          written
///   y = x W           (m k + min(k n, S)) s         m n s
///   weight gradient   (m k + m n) s                 min(k n, S) s
///
/// 2 m n k FLOP each. Repeated lookups are the model's business.
namespace perfmodel {

KernelWork hashed_product_work(const HashedProductShape& shape, DType dtype, bool matrix_units) {
  const double m = static_cast<double>(shape.m), n = static_cast<double>(shape.n),
               k = static_cast<double>(shape.k), size = bytes_per_number(dtype);
  const double array = std::min(k * n, static_cast<double>(shape.elements));
  const double read = shape.is_weight_gradient ? m * k + m * n : m * k + array;
  const double written = shape.is_weight_gradient ? array : m * n;
  return {.family = KernelFamily::kGemm,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {2 * m * n * k},
          .bytes_read = {read * size},
          .bytes_written = {written * size},
          .shape = shape};
}

}  // namespace perfmodel
