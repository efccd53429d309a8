#include <algorithm>
#include <optional>

#include "families.hpp"

/// Gathers and scatters. A gather reads as many source elements as it writes, plus the indices; a
/// scatter-add reads and writes its targets besides the source. The table itself is not read as a
/// whole.
namespace perfmodel::ops {
namespace {

double index_bytes(const OpView& op) {
  double total = 0;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    if (tensor.dtype == DType::kInt64 || tensor.dtype == DType::kInt32) total += bytes(tensor);
  });
  return total;
}

/// The rows of a table that indices into its first axis find; nothing where runs of memory are cut
/// otherwise (further indices, another axis).
std::optional<RowShape> rows_found(const OpView& op, const Tensor& table, std::int64_t elements) {
  if (op.inputs().size() < 2 || int_input(op, 1, 0) != 0) return std::nullopt;  // another axis
  const Argument& second = op.inputs()[1];
  if (second.kind == Argument::Kind::kList &&
      (second.count != 1 || op.graph.elements(second)[0].kind != Argument::Kind::kTensor)) {
    return std::nullopt;
  }
  std::int64_t count = 0;
  for_each_gpu_tensor(op, op.inputs().subspan(1), [&](const Tensor& tensor) {
    const bool is_index = tensor.dtype == DType::kInt64 || tensor.dtype == DType::kInt32;
    if (is_index && count == 0) count = tensor.numel;
  });
  if (count == 0 || elements % count != 0) return std::nullopt;
  const std::int64_t cols = elements / count;
  if (cols == 0 || table.numel % cols != 0) return std::nullopt;
  return RowShape{.rows = count, .cols = cols, .table_rows = table.numel / cols};
}

/// gather(self, 0, index, sparse_grad, out) as index_select calls it: `index` is expanded along the
/// rows, so that whole rows are copied.
std::optional<RowShape> rows_of_expanded_gather(const OpView& op) {
  constexpr std::size_t kInputs = 5;
  if (op.name() != "aten::gather" || op.inputs().size() != kInputs) return std::nullopt;
  const Tensor* source = op.tensor_input(0);
  const Tensor* index = op.tensor_input(2);
  if (!source || !index || source->rank != 2 || index->rank != 2) return std::nullopt;
  const std::int64_t cols = dim(op, *source, 1);
  if (int_input(op, 1, 0) != 0 || cols == 0 || dim(op, *index, 1) != cols) return std::nullopt;
  return RowShape{.rows = dim(op, *index, 0), .cols = cols, .table_rows = dim(op, *source, 0)};
}

/// index(self, indices[]), index_select(self, dim, index), gather(self, dim, index), take(self,
/// index): reads what it writes.
bool lower_gather(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* source = op.tensor_input(0);
  const Tensor* output = op.tensor_output(0);
  if (!source || !output) return false;
  if (output->numel == 0) return true;
  double indices = index_bytes(op);
  if (!is_floating_point(source->dtype)) indices -= std::min(indices, bytes(*source));
  auto rows = rows_of_expanded_gather(op);
  if (rows) {
    indices = static_cast<double>(rows->rows) * op.tensor_input(2)->item_size;
  } else {
    rows = rows_found(op, *source, output->numel);
  }
  kernels.push_back(
      make_work(KernelFamily::kIndex, source->dtype, bytes(*output) + indices, bytes(*output)));
  if (rows) kernels.back().shape = *rows;
  return true;
}

/// index_add_(self, dim, index, source), scatter_add_(self, dim, index, src), index_copy_,
/// scatter_, put_, masked_scatter_: the updates are the last tensor; additions read their targets
/// too.
bool lower_scatter(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* updates = nullptr;
  const Tensor* indices = nullptr;
  for (std::size_t i = 1; i < op.inputs().size(); ++i) {
    const Tensor* tensor = op.tensor_input(i);
    if (!tensor) continue;
    if (!indices) {
      indices = tensor;
    } else {
      updates = tensor;
    }
  }
  if (!indices) return false;
  const Tensor* self = op.tensor_input(0);
  if (!self) return false;
  const double moved =
      updates ? bytes(*updates) : static_cast<double>(indices->numel) * self->item_size;
  const std::string_view name = op.name();
  const bool adds =
      name.find("add") != std::string_view::npos || name.find("reduce") != std::string_view::npos;
  kernels.push_back(make_work(KernelFamily::kIndex, self->dtype,
                              bytes(*indices) + moved + (adds ? moved : 0), moved,
                              adds ? moved / 4 : 0));
  if (updates) {
    if (auto rows = rows_found(op, *self, updates->numel)) {
      rows->access = adds ? RowAccess::kAdd : RowAccess::kRead;
      kernels.back().shape = *rows;
    }
  }
  if (!name.ends_with('_') && !has_child(op, "aten::copy_") && !has_child(op, "aten::clone")) {
    // Out of place: self is copied first.
    kernels.insert(kernels.end() - 1,
                   make_work(KernelFamily::kCopy, self->dtype, bytes(*self), bytes(*self)));
    kernels[kernels.size() - 2].shape = CopyShape{.kind = CopyKind::kDeviceToDevice};
  }
  return true;
}

/// Targets of index_put: the axes after the last list of indices are contiguous and added as one
/// row; axes before the first list are further rows for each index.
RowShape sorted_rows(const OpView& op, const Tensor& self, std::int64_t elements) {
  std::int64_t cols = 1;
  const auto shape = op.shape(self);
  const std::size_t lists = op.inputs()[1].count;
  for (std::size_t axis = lists; axis < shape.size(); ++axis) cols *= shape[axis];
  if (cols <= 0 || elements % cols != 0) cols = 1;
  return {.rows = elements / cols,
          .cols = cols,
          .table_rows = self.numel / cols,
          .access = RowAccess::kSortedAdd};
}

/// _index_put_impl_(self, indices[], values, accumulate, unsafe). Accumulating sorts the linear
/// indices first (children compute them) and then adds runs of equal targets.
bool lower_index_put(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* self = op.tensor_input(0);
  const Tensor* values = op.tensor_input(2);
  if (!self || !values) return false;
  if (values->numel == 0) return true;
  const bool accumulate = bool_input(op, 3, false);
  double indices = 0;
  std::int64_t count = 1;
  if (op.inputs()[1].kind == Argument::Kind::kList) {
    for_each_gpu_tensor(op, op.graph.elements(op.inputs()[1]), [&](const Tensor& tensor) {
      indices += bytes(tensor);
      count = std::max(count, tensor.numel);
    });
  }
  if (accumulate) {
    append_radix_sort(kernels, count, 8, 8, bits_for(static_cast<double>(self->numel)));
  }
  const double moved = bytes(*values);
  kernels.push_back(make_work(KernelFamily::kIndex, self->dtype,
                              indices + moved + (accumulate ? moved : 0), moved));
  if (accumulate) {
    kernels.back().shape = sorted_rows(op, *self, values->numel);
  }
  return true;
}

/// Everything else that looks things up: reads its tensors, writes its outputs.
bool lower_index_one_pass(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any) return false;
  if (t.output_elements == 0) return true;
  kernels.push_back(make_work(KernelFamily::kIndex, t.dtype, t.read, t.written));
  return true;
}

/// bucketize / searchsorted: a binary search per element; the boundaries stay in cache.
bool lower_search(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* output = op.tensor_output(0);
  if (!output) return false;
  const Traffic t = traffic(op);
  kernels.push_back(make_work(KernelFamily::kIndex, output->dtype, t.read, t.written,
                              20.0 * static_cast<double>(output->numel)));
  return true;
}

}  // namespace

std::span<const NamedLower> index_rules() {
  static constexpr NamedLower kRules[] = {
      {"index.gather", lower_gather},       {"index.scatter", lower_scatter},
      {"index.index_put", lower_index_put}, {"index.one_pass", lower_index_one_pass},
      {"index.search", lower_search},
  };
  return kRules;
}

}  // namespace perfmodel::ops
