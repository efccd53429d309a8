#include "price/kernel_work.hpp"

/// N = b h sq sk scores; Q = b h sq d and K = b g sk d elements of s bytes, g heads of k and v.
///
///                     FLOP      read                                written
///   flash, forward    4 N d     (Q + 2 K) s                         Q s + 4 b h sq
///   flash, backward   10 N d    (3 Q + 2 K) s + 4 b h sq            (Q + 2 K) s
///   math, forward     4 N d     (2 Q + 3 K) s + 2 N s (+ 2 N s)     (2 Q + K) s + 2 N s (+ N s)
///   math, backward    8 N d     (3 Q + 2 K) s + 5 N s               (Q + 2 K) s + 2 N s
///
/// Flash keeps the scores on chip, writes one fp32 log-sum per row of q, and skips what a causal
/// mask hides (FLOP halved). Its backward pass computes the scores again: five products. Math:
/// forward are five kernels (scale q, scale k, q k', softmax, p v), all scores computed; a causal
/// mask is one more that reads scores and mask (in brackets; the mask counts as large as the
/// scores). Backward has four products and the softmax: p is read by two kernels, dp by one, ds by
/// two. The softmax's FLOP are not counted.
namespace perfmodel {

KernelWork attention_work(const AttentionShape& shape, DType dtype, bool matrix_units) {
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const double rows = heads * static_cast<double>(shape.seq_q);
  const double d = static_cast<double>(shape.head_dim);
  const double size = size_in_bytes(dtype);
  const double q = rows * d * size;
  const double kv_heads = static_cast<double>(shape.batch) *
                          static_cast<double>(shape.kv_heads > 0 ? shape.kv_heads : shape.heads);
  const double k = kv_heads * static_cast<double>(shape.seq_k) * d * size;
  const double scores = rows * static_cast<double>(shape.seq_k);
  const double score_bytes = scores * size;
  const double log_sums = 4 * rows;
  const bool forward = shape.pass == AttentionShape::Pass::kForward;
  double flop, read, written;
  if (shape.method == AttentionShape::Method::kFlash) {
    flop = (forward ? 4 : 10) * scores * d / (shape.causal ? 2 : 1);
    read = forward ? q + 2 * k : 3 * q + 2 * k + log_sums;
    written = forward ? q + log_sums : q + 2 * k;
    if (forward && shape.writes_cache) {
      read += 2 * k;
      written += 2 * k;
    }
  } else {
    flop = (forward ? 4 : 8) * scores * d;
    const double masks = forward && shape.causal ? 1 : 0;
    read =
        forward ? 2 * q + 3 * k + (2 + 2 * masks) * score_bytes : 3 * q + 2 * k + 5 * score_bytes;
    written = forward ? 2 * q + k + (2 + masks) * score_bytes : q + 2 * k + 2 * score_bytes;
  }
  return {.family = KernelFamily::kAttention,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {flop},
          .bytes_read = {read},
          .bytes_written = {written},
          .shape = shape};
}

}  // namespace perfmodel
