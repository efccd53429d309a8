#include "price/kernel_work.hpp"

/// A copy reads and writes its bytes once each, wherever the two sides are; a set only writes. A
/// strided copy's gaps do not count.
namespace perfmodel {

KernelWork memcpy_work(double bytes, CopyShape shape) {
  return {.family = KernelFamily::kCopy,
          .dtype = DType::kUInt8,
          .bytes_read = {bytes},
          .bytes_written = {bytes},
          .shape = shape};
}

KernelWork strided_copy_work(double bytes, std::int64_t run_bytes) {
  return memcpy_work(bytes, {.kind = CopyKind::kDeviceToDevice, .run_bytes = run_bytes});
}

KernelWork memset_work(double bytes) {
  return {
      .family = KernelFamily::kSet, .dtype = DType::kUInt8, .bytes_written = {bytes}, .shape = {}};
}

}  // namespace perfmodel
