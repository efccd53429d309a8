#include "price/kernel_work.hpp"

/// T = batch seq tokens; K = k_heads k_dim elements of q and of k, V = v_heads v_dim of v and o; C
/// tokens in a chunk; s bytes per element:
///
///                 FLOP                                              read              written
///   convolution   2 taps T (2 K + V)                                T (2 K + V) s     the same
///   chunked rule  v_heads T (4 C (k_dim + v_dim) + 6 k_dim v_dim)   T (2 K + V) s     T V s
///
/// The rule: scores of keys, their inverse, its products with k and v, scores of q within chunks of
/// C; and per chunk three products with the state [k_dim, v_dim] of each head, which stays in fp32.
namespace perfmodel {
KernelWork linear_attention_work(const LinearAttentionShape& shape, DType dtype,
                                 bool matrix_units) {
  const double tokens = static_cast<double>(shape.batch) * static_cast<double>(shape.seq);
  const double k_dim = static_cast<double>(shape.k_dim), v_dim = static_cast<double>(shape.v_dim),
               v_heads = static_cast<double>(shape.v_heads);
  const double values = v_heads * v_dim;
  const double all = 2 * static_cast<double>(shape.k_heads) * k_dim + values;
  const double size = size_in_bytes(dtype);
  KernelWork work{.family = KernelFamily::kLinearAttention, .dtype = dtype, .shape = shape};
  work.bytes_read = {tokens * all * size};
  if (shape.kernel == LinearAttentionShape::Kernel::kConvolution) {
    work.flop = {2 * static_cast<double>(shape.filter) * tokens * all};
    work.bytes_written = work.bytes_read;
  } else {
    work.matrix_units = matrix_units;
    work.flop = {v_heads * tokens *
                 (4 * kLinearAttentionChunk * (k_dim + v_dim) + 6 * k_dim * v_dim)};
    work.bytes_written = {tokens * values * size};
  }
  return work;
}

}  // namespace perfmodel
