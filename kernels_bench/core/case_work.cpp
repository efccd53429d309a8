#include "case_work.hpp"

#include "price/kernel_work.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Gpu;
using perfmodel::KernelWork;
using perfmodel::RowPass;

perfmodel::DType type_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return perfmodel::DType::kBFloat16;
    case DType::kFloat16: return perfmodel::DType::kFloat16;
    default: return perfmodel::DType::kFloat32;
  }
}

RowPass pass_of(Pass pass) {
  return pass == Pass::kForward ? RowPass::kForward : RowPass::kBackward;
}

bool on_matrix_units(DType dtype, const Gpu& gpu) {
  return dtype == DType::kTf32 || perfmodel::gemm_uses_matrix_units(type_of(dtype), gpu);
}

KernelWork work(const GemmCase& c, const Gpu& gpu) {
  return perfmodel::gemm_work({.batch = c.batch,
                               .m = c.m,
                               .n = c.n,
                               .k = c.k,
                               .a_transposed = c.a_transposed,
                               .b_transposed = c.b_transposed,
                               .has_bias = c.bias},
                              type_of(c.dtype), on_matrix_units(c.dtype, gpu));
}

KernelWork work(const ConvolutionCase& c, const Gpu& gpu) {
  using Shape = perfmodel::ConvolutionShape;
  const auto output = [&c](std::int64_t size) {
    return perfmodel::convolution_output(size, c.filter, c.pad, c.stride);
  };
  const Shape shape = {.pass = static_cast<Shape::Pass>(c.direction),
                       .n = c.n,
                       .c = c.c,
                       .h = c.h,
                       .w = c.w,
                       .k = c.k,
                       .r = c.filter,
                       .s = c.filter,
                       .p = output(c.h),
                       .q = output(c.w),
                       .stride = c.stride};
  return perfmodel::convolution_work(shape, type_of(c.dtype), on_matrix_units(c.dtype, gpu));
}

KernelWork work(const EmbeddingCase& c, const Gpu&) {
  const bool adagrad = c.optimizer == EmbeddingCase::Optimizer::kRowWiseAdagrad;
  perfmodel::EmbeddingShape shape = {.batch = c.batch,
                                     .num_tables = c.tables,
                                     .num_rows = static_cast<double>(c.rows),
                                     .dim = static_cast<double>(c.dim),
                                     .pooling_factor = static_cast<double>(c.pooling),
                                     .weight_bytes = bytes_of(c.weights),
                                     .zipf_exponent = c.zipf_exponent};
  if (c.pass == Pass::kForward) return perfmodel::embedding_forward_work(shape);
  shape.optimizer_bytes_per_row = adagrad ? 2 * 4 : 0;
  return perfmodel::embedding_backward_work(shape);
}

KernelWork work(const MemoryCase& c, const Gpu&) {
  using Kind = MemoryCase::Kind;
  const auto bytes = static_cast<double>(c.bytes);
  switch (c.kind) {
    case Kind::kSet: return perfmodel::memset_work(bytes);
    case Kind::kStrided: return perfmodel::strided_copy_work(bytes, c.row_bytes);
    case Kind::kHostToDevice:
      return perfmodel::memcpy_work(bytes, {perfmodel::CopyKind::kHostToDevice, !c.pinned});
    case Kind::kDeviceToHost:
      return perfmodel::memcpy_work(bytes, {perfmodel::CopyKind::kDeviceToHost, !c.pinned});
    case Kind::kDeviceToDevice: break;
  }
  return perfmodel::memcpy_work(bytes, {perfmodel::CopyKind::kDeviceToDevice, false});
}

KernelWork work(const ElementwiseCase& c, const Gpu&) {
  using Op = ElementwiseCase::Op;
  const double inputs = c.op == Op::kAddcmul ? 3 : c.op == Op::kAdd || c.op == Op::kMul ? 2 : 1;
  const bool transcendental =
      c.op == Op::kGelu || c.op == Op::kTanh || c.op == Op::kSigmoid || c.op == Op::kExp;
  return perfmodel::elementwise_work(static_cast<double>(c.rows * c.cols), inputs,
                                     transcendental ? 20 : 1, type_of(c.dtype));
}

KernelWork work(const RowCase& c, const Gpu&) {
  const perfmodel::DType dtype = type_of(c.dtype);
  switch (c.op) {
    case RowCase::Op::kSoftmax:
      return perfmodel::softmax_work(c.rows, c.cols, pass_of(c.pass), dtype);
    case RowCase::Op::kLayerNorm:
      return perfmodel::layer_norm_work(c.rows, c.cols, pass_of(c.pass), dtype);
    default: return perfmodel::reduction_work(c.rows, c.cols, dtype, c.strided);
  }
}

KernelWork work(const BatchNormCase& c, const Gpu&) {
  return perfmodel::batch_norm_work(c.channels, c.images * c.pixels, pass_of(c.pass),
                                    type_of(c.dtype));
}

KernelWork work(const DropoutCase& c, const Gpu&) {
  return perfmodel::dropout_work(static_cast<double>(c.elements), pass_of(c.pass),
                                 type_of(c.dtype));
}

KernelWork work(const TransposeCase& c, const Gpu&) {
  return perfmodel::transpose_work(c.batch, c.rows, c.cols, type_of(c.dtype));
}

KernelWork work(const ConcatCase& c, const Gpu&) {
  return perfmodel::concat_work(static_cast<double>(c.rows * (c.cols_a + c.cols_b)),
                                type_of(c.dtype));
}

KernelWork work(const GatherCase& c, const Gpu&) {
  const auto work = c.scatter_add ? perfmodel::scatter_add_work : perfmodel::gather_work;
  return work(c.count, c.cols, type_of(c.dtype), c.table_rows);
}

KernelWork work(const TrilCase& c, const Gpu&) {
  return perfmodel::tril_interaction_work(c.batch, c.features, false, pass_of(c.pass),
                                          type_of(c.dtype));
}

KernelWork work(const HashedProductCase& c, const Gpu& gpu) {
  using Scheme = perfmodel::HashedProductShape::Scheme;
  return perfmodel::hashed_product_work(
      {.scheme = c.by_elements ? Scheme::kElements : Scheme::kTiles,
       .is_weight_gradient = c.weight_gradient,
       .m = c.m,
       .n = c.n,
       .k = c.k,
       .elements = c.elements},
      perfmodel::DType::kFloat32, on_matrix_units(DType::kFloat32, gpu));
}

KernelWork work(const PeakCase& c, const Gpu& gpu) {
  using Kind = PeakCase::Kind;
  KernelWork none;
  switch (c.kind) {
    case Kind::kCopyBandwidth: return perfmodel::memcpy_work(static_cast<double>(c.bytes), {});
    case Kind::kReadBandwidth: none.bytes_read = {static_cast<double>(c.bytes)}; return none;
    case Kind::kFma:
      none.dtype = type_of(c.dtype);
      none.flop = {static_cast<double>(c.bytes)};
      return none;
    case Kind::kMatrix:
      return work(GemmCase{.dtype = c.dtype, .m = c.bytes, .n = c.bytes, .k = c.bytes}, gpu);
    default: return none;
  }
}

double embedding_bytes(const EmbeddingCase& c) {
  const auto lookups = static_cast<double>(c.tables * c.batch * c.pooling);
  const auto table_rows = static_cast<double>(c.tables * c.rows);
  const auto dim = static_cast<double>(c.dim);
  double bytes = table_rows * dim * bytes_of(c.weights) + lookups * 8 +
                 static_cast<double>(c.tables * c.batch) * dim * 4;
  const bool sorts =
      c.pass == Pass::kBackward && c.optimizer == EmbeddingCase::Optimizer::kRowWiseAdagrad;
  if (sorts) bytes += table_rows * 4 + 5 * lookups * 8;  // states; keys and values, twice, and work
  return bytes;
}

}  // namespace

KernelWork work_of(const Case& point, const Gpu& gpu) {
  return std::visit([&gpu](const auto& c) { return work(c, gpu); }, point);
}

double footprint_bytes(const Case& point) {
  if (const auto* embedding = std::get_if<EmbeddingCase>(&point)) {
    return embedding_bytes(*embedding);
  }
  if (const auto* gather = std::get_if<GatherCase>(&point)) {
    return static_cast<double>((gather->table_rows + gather->count) * gather->cols) *
               bytes_of(gather->dtype) +
           static_cast<double>(gather->count) * 8;
  }
  if (const auto* hashed = std::get_if<HashedProductCase>(&point)) {
    return 4 * static_cast<double>(hashed->m * (hashed->k + hashed->n) + hashed->elements);
  }
  if (const auto* memory = std::get_if<MemoryCase>(&point)) {
    return static_cast<double>(memory->bytes) *
           (memory->kind == MemoryCase::Kind::kStrided ? 3 : 2);
  }
  static const Gpu kNoGpu;
  return work_of(point, kNoGpu).bytes().value;
}

bool moves_or_computes(const Case& point) {
  static const Gpu kNoGpu;
  const KernelWork work = work_of(point, kNoGpu);
  return work.flop.value > 0 || work.bytes().value > 0;
}

}  // namespace kernels_bench
