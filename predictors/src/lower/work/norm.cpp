#include "price/kernel_work.hpp"

/// n elements of s bytes; FLOP 4 per element read. Weights, biases and statistics (one number per
/// row or column) are not counted.
///
///   layer norm, forward    read n s     written n s   a row stays on chip
///   layer norm, backward   read 2 n s   written n s   x and its gradient; the kernel of the
///   input's
///                                                     gradient (the parameters' has its own)
///   batch norm, forward    read 2 n s   written n s   training: statistics first, then the result
///   batch norm, backward   read 4 n s   written n s   x and the gradient, both twice
namespace perfmodel {
namespace {

KernelWork norm_work(std::int64_t rows, std::int64_t cols, double reads, DType dtype) {
  const double n = static_cast<double>(rows) * static_cast<double>(cols);
  const double size = size_in_bytes(dtype);
  return {.family = KernelFamily::kNorm,
          .dtype = dtype,
          .flop = {4 * reads * n},
          .bytes_read = {reads * n * size},
          .bytes_written = {n * size},
          .shape = RowShape{.rows = rows, .cols = cols}};
}

}  // namespace

KernelWork layer_norm_work(std::int64_t rows, std::int64_t cols, RowPass pass, DType dtype) {
  return norm_work(rows, cols, pass == RowPass::kForward ? 1 : 2, dtype);
}

KernelWork batch_norm_work(std::int64_t channels, std::int64_t per_channel, RowPass pass,
                           DType dtype) {
  KernelWork work = norm_work(channels, per_channel, pass == RowPass::kForward ? 2 : 4, dtype);
  std::get<RowShape>(work.shape).is_channel = true;
  return work;
}

}  // namespace perfmodel
