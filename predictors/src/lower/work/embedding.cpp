#include <algorithm>

#include "price/kernel_work.hpp"

/// Table-batched bags: B batch, T tables, L lookups per bag, E rows per table, D elements per row
/// of w bytes, o bytes per output element, i bytes per index, S bytes of optimizer state per row.
///
///   forward   FLOP B T L D   read B T L (D w + i) + (B T + 1) i   written B T D o
///   backward  FLOP B T L D   read B T D o + B T L i + U (D w + S / 2)   written U (D w + S / 2)
///
/// Every lookup counts (hits in caches are the models' business). U = T min(B L, E) bounds the rows
/// that the backward pass touches; the models refine it. Backward is the kernel that adds up the
/// gradients and applies them; the sort before it is not included.
namespace perfmodel {
namespace {

DType weight_dtype(int bytes) {
  switch (bytes) {
    case 8: return DType::kFloat64;
    case 2: return DType::kFloat16;
    case 1: return DType::kInt8;
    default: return DType::kFloat32;
  }
}

}  // namespace

KernelWork embedding_forward_work(const EmbeddingShape& shape) {
  const double bags = static_cast<double>(shape.batch) * static_cast<double>(shape.num_tables);
  const double lookups = bags * shape.pooling_factor;
  return {.family = KernelFamily::kEmbeddingForward,
          .dtype = weight_dtype(shape.weight_bytes),
          .flop = {lookups * shape.dim},
          .bytes_read = {lookups * (shape.dim * shape.weight_bytes + shape.index_bytes) +
                         (bags + 1) * shape.index_bytes},
          .bytes_written = {bags * shape.dim * shape.output_bytes},
          .shape = shape};
}

KernelWork embedding_backward_work(const EmbeddingShape& shape) {
  const double tables = static_cast<double>(shape.num_tables);
  const double bags = static_cast<double>(shape.batch) * tables;
  const double lookups = bags * shape.pooling_factor;
  const double touched = tables * std::min(lookups / std::max(1.0, tables), shape.num_rows);
  const double rows =
      touched * (shape.dim * shape.weight_bytes + shape.optimizer_bytes_per_row / 2);
  return {
      .family = KernelFamily::kEmbeddingBackward,
      .dtype = weight_dtype(shape.weight_bytes),
      .flop = {lookups * shape.dim},
      .bytes_read = {bags * shape.dim * shape.output_bytes + lookups * shape.index_bytes + rows},
      .bytes_written = {rows},
      .shape = shape};
}

}  // namespace perfmodel
