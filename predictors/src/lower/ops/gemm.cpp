#include <algorithm>
#include <cmath>

#include "families.hpp"
#include "ops/catalogue.hpp"
#include "price/kernel_work.hpp"

/// Matrix products. C[b, m, n] = A[b, m, k] B[b, k, n]: 2 b m n k FLOP; A, B and C move once. A
/// bias or C that is added is read once more. The price of a product includes the reduction that
/// cuBLAS launches after it if it splits k.
namespace perfmodel::ops {
namespace {

/// Whether aten::t, called just before by the same function, made this operand: then its columns
/// are next to each other in memory, not its rows. A weight's gradient is such a product.
bool is_turned(const OpView& op, const Tensor& operand) {
  if (op.node.parent < 0) return false;
  bool turned = false;
  for (const std::int32_t sibling : op.graph.children(op.node.parent)) {
    if (&op.graph.node(sibling) == &op.node) break;
    for_each_tensor(op.graph, op.graph.outputs(sibling), [&](const Tensor& made) {
      if (made.id == operand.id) turned = op.graph.name(sibling) == "aten::t";
    });
  }
  return turned;
}

// Models of aligned products are fitted on rows of one layout. Others learn the layout if it
// decides.
bool has_unaligned_columns(std::int64_t m, const Tensor& a) {
  return size_in_bytes(a.dtype) == 2 && m % 8 != 0;
}

/// Whether cuBLAS splits k and sums the parts in a second kernel. Products with an addend do not.
/// Chosen on the 253 others of our recordings on H100 and H200: it misses 7 of 97 that split and
/// names 11 that do not. Aligned 16-bit products split if k is long and whole tiles leave SMs idle.
bool splits_k(const GemmShape& s, DType dtype, const Gpu& gpu) {
  constexpr double kTile = 128, kDepthPerTile = 32, kLeastDepth = 256, kLongDepth = 8192;
  constexpr double kFewTiles = 0.6;  // against the slots in whole waves
  if (gpu.vendor != "nvidia" || s.batch > 1 || std::min(s.m, s.n) < 2) return false;
  const auto along = [](std::int64_t size) { return std::ceil(static_cast<double>(size) / kTile); };
  const double tiles = along(s.m) * along(s.n), sms = gpu.num_sms, k = static_cast<double>(s.k);
  if (size_in_bytes(dtype) == 2 && s.m % 8 == 0 && s.n % 8 == 0 && s.k % 8 == 0) {
    return k >= kLongDepth && tiles <= kFewTiles * std::ceil(tiles / sms) * sms;
  }
  return k >= std::max(kLeastDepth, kDepthPerTile * tiles) && 2 * tiles <= sms;
}

/// mm(A, B), addmm(C, A, B), and the batched forms: A and B are the last two matrices before any
/// scalars, whose position depends on the leading addend.
bool lower_matrix_product(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Op* row = find_op(op.name());
  const bool has_addend = row && row->has_addend;
  const Tensor* a = op.tensor_input(has_addend ? 1 : 0);
  const Tensor* b = op.tensor_input(has_addend ? 2 : 1);
  if (!a || !b || a->rank < 2 || b->rank < 2) return false;
  const std::int64_t k = dim(op, *a, -1);
  const std::int64_t m = dim(op, *a, -2);
  const std::int64_t n = dim(op, *b, -1);
  if (k != dim(op, *b, -2)) return false;
  const std::int64_t batch = m * k > 0 ? a->numel / (m * k) : 1;
  KernelWork work = gemm_work(batch, m, n, k, *a, gpu);
  if (auto* shape = std::get_if<GemmShape>(&work.shape)) {
    shape->a_transposed = has_unaligned_columns(m, *a) && is_turned(op, *a);
  }
  if (has_addend) work.bytes_read += {bytes(op.tensor_input(0))};
  if (a->numel == 0 || n == 0) return true;
  kernels.push_back(work);
  const auto* shape = std::get_if<GemmShape>(&work.shape);
  if (shape && !has_addend && splits_k(*shape, a->dtype, gpu)) kernels.push_back(part_work());
  return true;
}

/// linear(x, W, b) where the backend computes it in one go (no children).
bool lower_linear(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  if (op.node.children_count > 0) return true;
  const Tensor* x = op.tensor_input(0);
  const Tensor* w = op.tensor_input(1);
  if (!x || !w || w->rank < 1) return false;
  const std::int64_t k = dim(op, *w, -1);
  if (k <= 0 || dim(op, *x, -1) != k) return false;
  KernelWork work = gemm_work(1, x->numel / k, w->numel / k, k, *x, gpu);
  work.bytes_read += {bytes(op.tensor_input(2))};
  kernels.push_back(work);
  return true;
}

/// mv(A, x), addmv(y, A, x), dot(x, y), vdot, ger/outer: bound by reading the operands.
bool lower_matrix_vector(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::string_view name = base_name(op.name());
  const std::size_t first = name == "aten::addmv" || name == "aten::addr" ? 1 : 0;
  const Tensor* a = op.tensor_input(first);
  const Tensor* b = op.tensor_input(first + 1);
  if (!a || !b) return false;
  KernelWork work;
  if (name == "aten::dot" || name == "aten::vdot") {
    work = gemm_work(1, 1, 1, a->numel, *a, gpu);
  } else if (name == "aten::ger" || name == "aten::outer" || name == "aten::addr") {
    work = gemm_work(1, a->numel, b->numel, 1, *a, gpu);
  } else {
    const std::int64_t k = dim(op, *a, -1);
    work = gemm_work(1, k > 0 ? a->numel / k : 0, 1, k, *a, gpu);
  }
  kernels.push_back(work);
  return true;
}

/// Pairs of numbers in 4 bits are one element.
std::int64_t numbers_per_element(const Tensor& operand) {
  return operand.dtype == DType::kFloat4 ? 2 : 1;
}

/// Infers the scaling from the number of scales of the left operand [rows, ...].
Scaling scaling_of(const Tensor& operand, const Tensor* scales, std::int64_t rows) {
  if (operand.dtype == DType::kFloat4) return Scaling::kBlock;
  if (!scales || scales->numel <= 1) return Scaling::kTensor;
  return scales->numel == rows ? Scaling::kToken : Scaling::kBlock;
}

/// _scaled_mm(A, B, scales of A, scales of B, bias, ...): operands of 8 or 4 bits, a wider result.
/// B is stored column by column.
bool lower_scaled_product(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* a = op.tensor_input(0);
  const Tensor* b = op.tensor_input(1);
  if (!a || !b || a->rank != 2 || b->rank != 2 || dim(op, *a, 1) != dim(op, *b, 0)) return false;
  if (a->numel == 0 || b->numel == 0) return true;
  const Tensor* bias = named_tensor(op, "bias", 4);
  KernelWork work = perfmodel::gemm_work(
      GemmShape{.m = dim(op, *a, 0),
                .n = dim(op, *b, 1),
                .k = dim(op, *a, 1) * numbers_per_element(*a),
                .b_transposed = true,
                .has_bias = bias && bias->numel > 0,
                .scaling = scaling_of(*a, named_tensor(op, "scale_a", 2), dim(op, *a, 0))},
      a->dtype, gemm_uses_matrix_units(a->dtype, gpu));
  if (const Tensor* made = op.tensor_output(0)) work.bytes_written = {bytes(*made)};
  kernels.push_back(work);
  return true;
}

/// _grouped_mm(A, B, ends, ...) and _scaled_grouped_mm(A, B, scales, scales, ends, ...): rows
/// [T, K] times matrices [E, K, N]; or, for gradients of matrices, columns [M, T] times rows
/// [T, N], whose T is cut into E pieces: the same FLOP, but the matrices are written.
bool lower_grouped_product(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* a = op.tensor_input(0);
  const Tensor* b = op.tensor_input(1);
  const Tensor* made = op.tensor_output(0);
  if (!a || !b || !made || a->rank != 2) return false;
  const bool of_rows = b->rank == 3 && made->rank == 2;
  if (!of_rows && (b->rank != 2 || made->rank != 3)) return false;
  const std::int64_t pair = numbers_per_element(*a);
  GroupedGemmShape shape;
  shape.groups = dim(op, of_rows ? *b : *made, 0);
  shape.rows = of_rows ? dim(op, *a, 0) : dim(op, *a, 1) * pair;
  shape.n = dim(op, *b, -1);
  shape.k = of_rows ? dim(op, *a, 1) * pair : dim(op, *a, 0);
  if (shape.groups <= 0 || shape.rows <= 0 || shape.n <= 0 || shape.k <= 0) return true;
  KernelWork work = grouped_gemm_work(shape, a->dtype, gemm_uses_matrix_units(a->dtype, gpu));
  if (!of_rows || pair > 1) work.bytes_read = {bytes(*a) + bytes(*b)};
  work.bytes_written = {bytes(*made)};
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> gemm_rules() {
  static constexpr NamedLower kRules[] = {
      {"gemm.matrix_product", lower_matrix_product}, {"gemm.linear", lower_linear},
      {"gemm.matrix_vector", lower_matrix_vector},   {"gemm.scaled", lower_scaled_product},
      {"gemm.grouped", lower_grouped_product},
  };
  return kRules;
}

}  // namespace perfmodel::ops
