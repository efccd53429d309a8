#include "perfmodel/predictors/kernel_work.hpp"

/// A copy reads and writes its bytes once each, wherever the two sides lie; a set only writes.
namespace perfmodel {

KernelWork memcpy_work(double bytes, CopyShape shape) {
  return {.family = KernelFamily::kCopy,
          .dtype = DType::kUInt8,
          .bytes_read = {bytes},
          .bytes_written = {bytes},
          .shape = shape};
}

KernelWork memset_work(double bytes) {
  return {
      .family = KernelFamily::kSet, .dtype = DType::kUInt8, .bytes_written = {bytes}, .shape = {}};
}

}  // namespace perfmodel
