#include "price/kernel_work.hpp"

/// n results from i tensors of n elements, s bytes each: FLOP n f, read i n s, written n s.
namespace perfmodel {

KernelWork elementwise_work(double elements, double inputs, double flop_per_element, DType dtype) {
  const double size = size_in_bytes(dtype);
  return {.family = KernelFamily::kElementwise,
          .dtype = dtype,
          .flop = {elements * flop_per_element},
          .bytes_read = {inputs * elements * size},
          .bytes_written = {elements * size},
          .shape = {}};
}

bool is_cast(const KernelWork& work) {
  return work.layout == Layout::kMixedTypes && work.flop.value > 0 &&
         work.bytes_read.value == work.flop.value * size_in_bytes(work.dtype);
}

KernelWork cast_of_tables(const KernelWork& cast) {
  KernelWork counted = cast;
  counted.bytes_written = cast.bytes_read;
  return counted;
}

}  // namespace perfmodel
