#include <algorithm>

#include "embedding_nodes.hpp"
#include "families.hpp"

/// Embedding lookups of PyTorch itself. Symbols: B bags, L lookups per bag (mean), E rows, D
/// elements per row. Forward reads B L indices and rows and the offsets, writes B rows. Backward is
/// dense: it sorts the indices, then sums the gradients of equal indices into a matrix that a child
/// (aten::zeros) has cleared.
namespace perfmodel::ops {
namespace {

KernelWork lookup_work(KernelFamily family, const EmbeddingShape& shape, DType dtype,
                       double rows_read, double rows_written) {
  const double row = shape.dim * shape.weight_bytes;
  const double lookups = static_cast<double>(shape.batch * shape.num_tables) * shape.pooling_factor;
  KernelWork work = make_work(family, dtype, rows_read * row + lookups * shape.index_bytes,
                              rows_written * row, lookups * shape.dim);
  work.shape = shape;
  return work;
}

bool lower_bag(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  auto shape = read_bag(op);
  if (!shape) return false;
  shape->is_serial = true;
  const Tensor& weight = *op.tensor_input(0);
  const double lookups = static_cast<double>(op.tensor_input(1)->numel);
  if (shape->batch == 0) return lookups == 0;
  KernelWork work = lookup_work(KernelFamily::kEmbeddingForward, *shape, weight.dtype, lookups,
                                static_cast<double>(shape->batch));
  work.bytes_read += {bytes(op.tensor_input(2))};
  kernels.push_back(work);
  return true;
}

/// embedding(weight, indices): where it has no aten::index_select child.
bool lower_embedding_lookup(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto shape = read_lookup(op);
  if (!shape) return false;
  const double lookups = static_cast<double>(shape->batch);
  kernels.push_back(lookup_work(KernelFamily::kEmbeddingForward, *shape, op.tensor_input(0)->dtype,
                                lookups, lookups));
  return true;
}

/// embedding_dense_backward(grad, indices, num_weights, ...) and
/// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
/// ...). Up to 3072 plain lookups one kernel adds without sorting (ATen Embedding.cu); else sort,
/// find the segments of equal indices (4 small kernels), add up.
bool lower_dense_backward(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* gradient = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  if (!gradient || !indices || gradient->rank < 1) return false;
  const bool is_bag = op.name().find("bag") != std::string_view::npos;
  const std::int64_t d = dim(op, *gradient, -1);
  const int rows_at = parameter_index(op, "num_weights");
  const std::int64_t num_rows = int_input(op,
                                          rows_at >= 0 ? static_cast<std::size_t>(rows_at)
                                          : is_bag     ? 5
                                                       : 2,
                                          0);
  if (d <= 0 || num_rows <= 0) return false;
  const std::int64_t bags = gradient->numel / d;
  const double lookups = static_cast<double>(indices->numel);

  constexpr std::int64_t kUnsortedLimit = 3072;
  if (is_bag || indices->numel > kUnsortedLimit) {
    if (!has_child(op, "aten::sort")) {
      append_radix_sort(kernels, indices->numel, indices->item_size, indices->item_size,
                        bits_for(static_cast<double>(num_rows)));
    }
    for (int i = 0; i < 4; ++i) kernels.push_back(small_work());
  }
  EmbeddingShape shape{.batch = bags,
                       .num_tables = 1,
                       .num_rows = static_cast<double>(num_rows),
                       .dim = static_cast<double>(d),
                       .pooling_factor = bags > 0 ? lookups / static_cast<double>(bags) : 0,
                       .weight_bytes = gradient->item_size,
                       .index_bytes = indices->item_size,
                       .output_bytes = gradient->item_size};
  kernels.push_back(lookup_work(KernelFamily::kEmbeddingBackward, shape, gradient->dtype, lookups,
                                std::min(lookups, static_cast<double>(num_rows))));
  return true;
}

/// Sparse gradients are gathered by children (aten::index_select); the node itself only wraps.
bool lower_sparse_backward(const OpView&, const Gpu&, std::vector<KernelWork>&) { return true; }

/// embedding_renorm_(weight, indices, max_norm, norm_type): sorts the indices, keeps one of each
/// and passes over their rows. The number of rows stays on the GPU (Embedding.cu of PyTorch 2).
bool lower_renorm(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* weight = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  if (!weight || !indices) return false;
  if (!has_child(op, "aten::sort")) {
    append_radix_sort(kernels, indices->numel, indices->item_size, 0,
                      bits_for(static_cast<double>(dim(op, *weight, 0))));
  }
  append_compaction(kernels, indices->dtype, bytes(*indices), bytes(*indices));
  const double rows = static_cast<double>(indices->numel) *
                      static_cast<double>(dim(op, *weight, -1)) * weight->item_size;
  kernels.push_back(make_work(KernelFamily::kIndex, weight->dtype, rows, rows));
  return true;
}

}  // namespace

std::span<const NamedLower> embedding_rules() {
  static constexpr NamedLower kRules[] = {
      {"embedding.bag", lower_bag},
      {"embedding.lookup", lower_embedding_lookup},
      {"embedding.dense_backward", lower_dense_backward},
      {"embedding.sparse_backward", lower_sparse_backward},
      {"embedding.renorm", lower_renorm},
  };
  return kRules;
}

}  // namespace perfmodel::ops
