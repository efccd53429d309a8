#include "price/kernel_work.hpp"

/// n elements of s bytes, one byte of mask each.
///
///   forward   FLOP 20 n (Philox: ~ 10 integer rounds per 4 numbers)  read n s    written n (s + 1)
///   backward  FLOP 2 n                                          read n (s + 1)   written n s
namespace perfmodel {

KernelWork dropout_work(double elements, RowPass pass, DType dtype) {
  const double size = size_in_bytes(dtype);
  const bool forward = pass == RowPass::kForward;
  return {.family = KernelFamily::kDropout,
          .dtype = dtype,
          .flop = {(forward ? 20 : 2) * elements},
          .bytes_read = {elements * (forward ? size : size + 1)},
          .bytes_written = {elements * (forward ? size + 1 : size)},
          .shape = {}};
}

}  // namespace perfmodel
