#include "price/kernel_work.hpp"

/// DLRM's feature interaction after its batched product: of b matrices f x f the P = f (f - 1) / 2
/// pairs below the diagonal (P + f with it), s bytes each, no FLOP.
///
///   forward   read b P s   written b P s     the triangle, packed
///   backward  read b P s   written b f f s   the whole matrix, zeros above
namespace perfmodel {

KernelWork tril_interaction_work(std::int64_t batch, std::int64_t features, bool with_diagonal,
                                 RowPass pass, DType dtype) {
  const std::int64_t pairs = features * (features - 1) / 2 + (with_diagonal ? features : 0);
  const double b = static_cast<double>(batch), f = static_cast<double>(features);
  const double size = size_in_bytes(dtype);
  const double packed = b * static_cast<double>(pairs) * size;
  return {.family = KernelFamily::kInteraction,
          .dtype = dtype,
          .bytes_read = {packed},
          .bytes_written = {pass == RowPass::kForward ? packed : b * f * f * size},
          .shape = RowShape{.rows = batch, .cols = pairs}};
}

}  // namespace perfmodel
