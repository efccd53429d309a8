#include "price/kernel_work.hpp"

/// `elements` of the result: each is read from its input and written once, no FLOP.
namespace perfmodel {

KernelWork concat_work(double elements, DType dtype) {
  const double moved = elements * size_in_bytes(dtype);
  return {.family = KernelFamily::kConcat,
          .dtype = dtype,
          .bytes_read = {moved},
          .bytes_written = {moved},
          .shape = {}};
}

}  // namespace perfmodel
