#include <algorithm>

#include "families.hpp"

/// Sorting. Rows of up to 4096 elements are sorted by one block each in shared memory (one kernel);
/// a longer single row by CUB's device-wide radix sort; many long rows by a segmented radix sort,
/// counted as device-wide.
namespace perfmodel::ops {
namespace {

constexpr std::int64_t kBlockSortElements = 4096;

bool lower_sort(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* keys = op.tensor_input(0);
  if (!keys) return false;
  if (keys->numel == 0) return true;
  const std::int64_t cols = std::max<std::int64_t>(1, dim(op, *keys, -1));
  if (cols <= kBlockSortElements) {
    const double moved = static_cast<double>(keys->numel) * (keys->item_size + 8);
    KernelWork work = make_work(KernelFamily::kSort, keys->dtype, moved, moved,
                                static_cast<double>(keys->numel) * 8);
    work.shape = RowShape{.rows = keys->numel / cols, .cols = cols};
    kernels.push_back(work);
  } else {
    append_radix_sort(kernels, keys->numel, keys->item_size, 8, 8 * keys->item_size);
  }
  return true;
}

/// topk(self, k, ...): radix selection reads the row once per 2-4 bits of what still competes, ~ 4
/// reads in all, then sorts the k winners.
bool lower_topk(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x) return false;
  if (x->numel == 0) return true;
  const Traffic t = traffic(op);
  const std::int64_t cols = std::max<std::int64_t>(1, dim(op, *x, -1));
  KernelWork work = make_work(KernelFamily::kReduction, x->dtype, 4 * bytes(*x), t.written,
                              4 * static_cast<double>(x->numel));
  work.shape = RowShape{.rows = x->numel / cols, .cols = cols};
  kernels.push_back(work);
  kernels.push_back(make_work(KernelFamily::kSort, x->dtype, t.written, t.written));
  return true;
}

}  // namespace

std::span<const NamedLower> sort_rules() {
  static constexpr NamedLower kRules[] = {
      {"sort", lower_sort},
      {"sort.topk", lower_topk},
  };
  return kRules;
}

}  // namespace perfmodel::ops
