#include <algorithm>
#include <bit>

#include "families.hpp"

/// Ops whose results are as large as the data say, and ops that give the host a number. PyTorch
/// sorts, marks and compacts with CUB or Thrust, then copies the count to the host, which waits for
/// it. The kernels follow the sources of PyTorch 1.13 and 2 (ATen/native/cuda: UniqueCub.cu,
/// Unique.cu, Nonzero.cu, SummaryOps.cu, Equal.cpp; native/sparse/cuda: SparseCUDATensor.cu).
/// Nothing here was measured. Thrust's calls wait for their own kernels too, which is left out:
/// some microseconds per call. A count that a child reads ("aten::item") is not read again.
namespace perfmodel::ops {
namespace {

constexpr int kIndexBytes = 8;

KernelWork whole_reduction(const Tensor& x) {
  KernelWork work = make_work(KernelFamily::kReduction, x.dtype, bytes(x), kIndexBytes,
                              static_cast<double>(x.numel));
  work.shape = RowShape{.rows = 1, .cols = x.numel};
  return work;
}

/// Thrust sorts by a comparison that it does not know in blocks of 2,048 elements, then merges
/// pairs of blocks: a search for the borders and one pass over everything, each time. `bytes`: per
/// element, read and written in each pass; `compared_bytes`: read besides.
void append_merge_sort(std::vector<KernelWork>& kernels, std::int64_t count, double bytes,
                       double compared_bytes) {
  constexpr std::int64_t kBlock = 2048;  // 256 threads x 8 keys of 8 bytes
  const auto n = static_cast<double>(count);
  const auto blocks = static_cast<std::uint64_t>((count + kBlock - 1) / kBlock);
  const int merges = blocks <= 1 ? 0 : static_cast<int>(std::bit_width(blocks - 1));
  const KernelWork pass =
      make_work(KernelFamily::kSort, DType::kInt64, n * (bytes + compared_bytes), n * bytes);
  kernels.push_back(pass);
  for (int i = 0; i < merges; ++i) {
    kernels.push_back(small_work());
    kernels.push_back(pass);
  }
}

void append_range(std::vector<KernelWork>& kernels, std::int64_t count) {
  kernels.push_back(make_work(KernelFamily::kElementwise, DType::kInt64, 0,
                              static_cast<double>(count) * kIndexBytes));
}

/// The inverse indices: marks of changes, their running sum, and unless equal elements were
/// neighbours before, a scatter back to their places before the sort.
void append_inverse(std::vector<KernelWork>& kernels, DType dtype, std::int64_t count, double read,
                    bool scatters) {
  const double places = static_cast<double>(count) * kIndexBytes;
  kernels.push_back(make_work(KernelFamily::kIndex, dtype, read, places));
  kernels.push_back(small_work());  // the scan
  kernels.push_back(make_work(KernelFamily::kReduction, DType::kInt64, places, places,
                              static_cast<double>(count)));
  kernels.back().shape = RowShape{.rows = 1, .cols = count};
  if (scatters) {
    kernels.push_back(make_work(KernelFamily::kIndex, DType::kInt64, 2 * places, places));
  }
}

void append_read_back(const OpView& op, std::vector<KernelWork>& kernels) {
  if (!has_child(op, "aten::item")) kernels.push_back(read_back_work());
}

/// _unique2(self, sorted, return_inverse, return_counts), _unique(self, sorted, return_inverse) and
/// unique_consecutive(self, return_inverse, return_counts, dim), which does not sort.
bool lower_unique(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x || !x->on_gpu()) return false;
  if (x->numel == 0) return true;
  const bool sorts = op.name() != "aten::unique_consecutive";
  const bool with_inverse = bool_input(op, sorts ? 2 : 1, false);
  const bool with_counts = bool_input(op, sorts ? 3 : 2, false);
  if (sorts) {
    if (with_inverse && !has_child(op, "aten::arange")) append_range(kernels, x->numel);
    append_radix_sort(kernels, x->numel, x->item_size, with_inverse ? kIndexBytes : 0,
                      8 * x->item_size);
  }
  if (with_inverse) append_inverse(kernels, x->dtype, x->numel, bytes(*x), sorts);
  const double counts = with_counts ? bytes(op.tensor_output(2)) : 0;
  append_compaction(kernels, x->dtype, bytes(*x), bytes(op.tensor_output(0)) + counts);
  append_read_back(op, kernels);
  return true;
}

/// unique_dim(self, dim, sorted, return_inverse, return_counts) and unique_dim_consecutive(self,
/// dim, return_inverse, return_counts): sorts row numbers by the rows' contents. Rows usually
/// differ early, so a comparison reads one memory sector of each.
bool lower_unique_dim(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  constexpr double kSector = 32;
  const Tensor* x = op.tensor_input(0);
  if (!x || !x->on_gpu()) return false;
  if (x->numel == 0) return true;
  const bool sorts = op.name() == "aten::unique_dim";
  const std::int64_t rows = dim(op, *x, static_cast<int>(int_input(op, 1, 0)));
  const double row = bytes(*x) / static_cast<double>(rows);
  const double compared = 2 * std::min(row, kSector), numbers = kIndexBytes;
  const double places = static_cast<double>(rows) * numbers;
  if (!has_child(op, "aten::arange")) append_range(kernels, rows);
  if (sorts) append_merge_sort(kernels, rows, numbers, compared);
  if (bool_input(op, sorts ? 3 : 2, false)) {
    append_inverse(kernels, x->dtype, rows, static_cast<double>(rows) * (numbers + compared), true);
  }
  const bool with_counts = bool_input(op, sorts ? 4 : 3, false);
  if (with_counts && !has_child(op, "aten::arange")) append_range(kernels, rows + 1);
  append_compaction(kernels, x->dtype, static_cast<double>(rows) * (numbers + compared), places);
  kernels.push_back(read_back_work());
  if (with_counts) {
    kernels.push_back(make_work(KernelFamily::kIndex, DType::kInt64, places, places));
  }
  if (!has_child(op, "aten::index_select")) {
    const double kept = bytes(op.tensor_output(0));
    kernels.push_back(make_work(KernelFamily::kIndex, x->dtype, kept, kept));
  }
  return true;
}

void append_nonzero(std::vector<KernelWork>& kernels, const Tensor& mask, double found) {
  kernels.push_back(small_work());
  kernels.push_back(whole_reduction(mask));
  kernels.push_back(read_back_work());
  append_compaction(kernels, mask.dtype, bytes(mask), found);
}

/// nonzero(self): counts, reads the count, selects, writes the coordinates.
bool lower_nonzero(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* self = op.tensor_input(0);
  if (!self) return false;
  if (!self->on_gpu()) return true;
  const double found = bytes(op.tensor_output(0));
  append_nonzero(kernels, *self, found);
  if (self->rank > 1) {
    kernels.push_back(make_work(KernelFamily::kIndex, DType::kInt64, found, found));
  }
  return true;
}

/// masked_select(self, mask) is index(self, [mask]), which looks for the nonzero elements first.
bool lower_masked_select(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *self = op.tensor_input(0), *mask = op.tensor_input(1);
  const Tensor* made = op.tensor_output(0);
  if (!self || !mask || !made) return false;
  if (has_child(op, "aten::index") || !mask->on_gpu()) return true;
  const double places = static_cast<double>(made->numel) * kIndexBytes;
  append_nonzero(kernels, *mask, places);
  kernels.push_back(
      make_work(KernelFamily::kIndex, self->dtype, bytes(*made) + places, bytes(*made)));
  return true;
}

/// Each element is added to its bin; the result was cleared before.
void append_histogram(const OpView& op, std::vector<KernelWork>& kernels, const Tensor& x,
                      const Tensor& bins) {
  if (!has_child(op, "aten::zeros")) {
    kernels.push_back(make_work(KernelFamily::kSet, bins.dtype, 0, bytes(bins)));
  }
  const double added = static_cast<double>(x.numel) * bins.item_size;
  kernels.push_back(make_work(KernelFamily::kIndex, bins.dtype, bytes(x) + added, added,
                              static_cast<double>(x.numel)));
  kernels.back().shape =
      RowShape{.rows = x.numel, .cols = 1, .table_rows = bins.numel, .access = RowAccess::kAdd};
}

void append_extremes(const OpView& op, std::vector<KernelWork>& kernels, const Tensor& x) {
  for (const char* extreme : {"aten::min", "aten::max"}) {
    if (has_child(op, extreme)) continue;  // with its copy to the host
    kernels.push_back(whole_reduction(x));
    kernels.push_back(read_back_work());
  }
}

/// bincount(self, weights, minlength): the host reads the least element, which must not be
/// negative, and the largest, which gives the size of the result.
bool lower_bincount(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *x = op.tensor_input(0), *bins = op.tensor_output(0);
  if (!x || !bins || !x->on_gpu()) return false;
  if (x->numel == 0) return true;
  append_extremes(op, kernels, *x);
  append_histogram(op, kernels, *x, *bins);
  return true;
}

double number_input(const OpView& op, std::size_t i) {
  return real_input(op, i, static_cast<double>(int_input(op, i, 0)));
}

/// histc(self, bins, min, max): the host reads the limits unless they are given.
bool lower_histc(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *x = op.tensor_input(0), *bins = op.tensor_output(0);
  if (!x || !bins || !x->on_gpu()) return false;
  if (x->numel == 0) return true;
  if (number_input(op, 2) == number_input(op, 3)) append_extremes(op, kernels, *x);
  append_histogram(op, kernels, *x, *bins);
  return true;
}

/// equal(self, other): compares, asks whether all are equal, reads the answer.
bool lower_equal(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *a = op.tensor_input(0), *b = op.tensor_input(1);
  if (!a || !b || !a->on_gpu()) return false;
  if (a->numel == 0 || a->numel != b->numel) return true;
  const auto count = static_cast<double>(a->numel);
  if (!has_child(op, "aten::eq")) {
    kernels.push_back(
        make_work(KernelFamily::kElementwise, a->dtype, bytes(*a) + bytes(*b), count, count));
  }
  if (!has_child(op, "aten::all")) {
    kernels.push_back(make_work(KernelFamily::kReduction, DType::kBool, count, 1, count));
    kernels.back().shape = RowShape{.rows = 1, .cols = a->numel};
  }
  append_read_back(op, kernels);
  return true;
}

const Tensor* tensor_of_child(const OpView& op, std::string_view name, std::size_t input) {
  const auto children = op.graph.children(op.node);
  const auto at = std::ranges::find_if(
      children, [&](std::int32_t child) { return op.graph.name(child) == name; });
  if (at == children.end()) return nullptr;
  const auto arguments = op.graph.inputs(*at);
  if (input >= arguments.size() || arguments[input].kind != Argument::Kind::kTensor) return nullptr;
  return &op.graph.tensors[arguments[input].index];
}

const Tensor* result_of_child(const OpView& op, std::string_view name) {
  for (const std::int32_t child : op.graph.children(op.node)) {
    const auto results = op.graph.outputs(child);
    const bool is_wanted = op.graph.name(child) == name && !results.empty() &&
                           results[0].kind == Argument::Kind::kTensor;
    if (is_wanted) return &op.graph.tensors[results[0].index];
  }
  return nullptr;
}

/// _coalesce(self): numbers the entries twice, sorts their flat indices, keeps one of each, reads
/// how many, and adds up the values of equal indices. A sparse tensor shows its entries in its
/// children alone.
bool lower_coalesce(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* values = result_of_child(op, "aten::_values");
  const Tensor* merged = tensor_of_child(op, "aten::_sparse_coo_tensor_unsafe", 1);
  if (!values || !merged || !values->on_gpu()) return false;
  const std::int64_t entries = dim(op, *values, 0);
  if (entries < 2) return true;
  const double places = static_cast<double>(entries) * kIndexBytes;
  append_range(kernels, entries);
  append_range(kernels, entries);
  append_merge_sort(kernels, entries, 2 * kIndexBytes, 0);
  append_compaction(kernels, DType::kInt64, 2 * places,
                    2.0 * kIndexBytes * static_cast<double>(dim(op, *merged, 0)));
  kernels.push_back(read_back_work());
  kernels.push_back(make_work(KernelFamily::kIndex, values->dtype, bytes(*values) + 2 * places,
                              bytes(*merged), static_cast<double>(values->numel)));
  kernels.back().shape =
      RowShape{.rows = entries, .cols = values->numel / entries, .table_rows = entries};
  return true;
}

}  // namespace

std::span<const NamedLower> data_sized_rules() {
  static constexpr NamedLower kRules[] = {
      {"data_sized.unique", lower_unique},     {"data_sized.unique_dim", lower_unique_dim},
      {"data_sized.nonzero", lower_nonzero},   {"data_sized.masked_select", lower_masked_select},
      {"data_sized.bincount", lower_bincount}, {"data_sized.histc", lower_histc},
      {"data_sized.equal", lower_equal},       {"data_sized.coalesce", lower_coalesce},
  };
  return kRules;
}

}  // namespace perfmodel::ops
