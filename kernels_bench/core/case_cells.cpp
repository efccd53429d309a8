#include "case_cells.hpp"

#include <fmt/format.h>

#include <array>

namespace kernels_bench {
namespace {

Cell kind(std::string_view column, std::string_view text) { return {column, std::string(text)}; }
Cell size(std::string_view column, std::int64_t value) {
  return {column, std::to_string(value), true};
}
Cell direction(Pass pass) { return kind("direction", pass == Pass::kForward ? "fwd" : "bwd"); }
Cell type(DType dtype) { return kind("dtype", to_string(dtype)); }

using Cells = std::vector<Cell>;

// Kernel tables name the layout as column-major libraries do: the letter of B comes first.
std::string_view layout_of(const GemmCase& c) {
  if (c.a_transposed) return c.b_transposed ? "tt" : "nt";
  return c.b_transposed ? "tn" : "nn";
}

Cells cells(const GemmCase& c) {
  Cells row = {kind("op", c.batched ? "bmm"
                          : c.bias  ? "linear"
                                    : "gemm"),
               type(c.dtype),
               size("m", c.m),
               size("n", c.n),
               size("k", c.k),
               kind("layout", layout_of(c))};
  if (c.batched) row.insert(row.begin() + 2, size("b", c.batch));
  return row;
}

Cells cells(const ConvolutionCase& c) {
  constexpr std::array<std::string_view, 3> kDirections = {"fwd", "dgrad", "wgrad"};
  return {kind("op", "conv2d"),
          type(c.dtype),
          kind("direction", kDirections[static_cast<std::size_t>(c.direction)]),
          size("n", c.n),
          size("c", c.c),
          size("h", c.h),
          size("w", c.w),
          size("k", c.k),
          kind("r", std::to_string(c.filter)),
          kind("s", std::to_string(c.filter)),
          kind("pad_h", std::to_string(c.pad)),
          kind("pad_w", std::to_string(c.pad)),
          kind("stride_h", std::to_string(c.stride)),
          kind("stride_w", std::to_string(c.stride))};
}

Cells cells(const EmbeddingCase& c) {
  const bool forward = c.pass == Pass::kForward;
  Cells row = {kind("op", forward ? "embedding_forward" : "embedding_backward"),
               type(c.weights),
               size("tables", c.tables),
               size("rows", c.rows),
               size("batch", c.batch),
               size("pooling", c.pooling),
               size("dim", c.dim),
               kind("zipf", fmt::format("{:g}", c.zipf_exponent))};
  if (!forward) {
    const bool sgd = c.optimizer == EmbeddingCase::Optimizer::kSgd;
    row.push_back(kind("optimizer", sgd ? "sgd" : "rowwise_adagrad"));
  }
  return row;
}

Cells cells(const MemoryCase& c) {
  using Kind = MemoryCase::Kind;
  if (c.kind == Kind::kSet) return {kind("op", "memset"), size("bytes", c.bytes)};
  if (c.kind == Kind::kStrided) {
    return {kind("op", "strided_copy"), size("bytes", c.bytes), size("row_bytes", c.row_bytes)};
  }
  const bool to_device = c.kind == Kind::kHostToDevice;
  const bool on_device = c.kind == Kind::kDeviceToDevice;
  Cells row = {kind("op", "memcpy"), size("bytes", c.bytes),
               kind("copy_kind", on_device   ? "d2d"
                                 : to_device ? "h2d"
                                             : "d2h")};
  if (!on_device) row.push_back(kind("pinned", c.pinned ? "1" : "0"));
  return row;
}

Cells cells(const ElementwiseCase& c) {
  constexpr std::array<std::string_view, 9> kOps = {"relu", "gelu", "tanh", "sigmoid",    "exp",
                                                    "addu", "add",  "mul",  "elementwise"};
  Cells row = {kind("op", kOps[static_cast<std::size_t>(c.op)]), type(c.dtype),
               size("rows", c.rows), size("cols", c.cols)};
  if (c.op == ElementwiseCase::Op::kAddcmul) row.push_back(kind("n_inputs", "3"));
  return row;
}

Cells cells(const RowCase& c) {
  constexpr std::array<std::string_view, 4> kOps = {"sum", "max", "softmax", "layer_norm"};
  Cells row = {kind("op", kOps[static_cast<std::size_t>(c.op)]), type(c.dtype),
               size("rows", c.rows), size("cols", c.cols)};
  const bool reduces = c.op == RowCase::Op::kSum || c.op == RowCase::Op::kMax;
  row.push_back(reduces ? kind("strided", c.strided ? "1" : "0") : direction(c.pass));
  return row;
}

Cells cells(const BatchNormCase& c) {
  return {kind("op", "batch_norm"), type(c.dtype),
          size("rows", c.channels), size("cols", c.images * c.pixels),
          size("images", c.images), direction(c.pass)};
}

Cells cells(const DropoutCase& c) {
  return {kind("op", "dropout"), type(c.dtype), size("elements", c.elements), direction(c.pass)};
}

Cells cells(const TransposeCase& c) {
  return {kind("op", "transpose"), type(c.dtype), size("b", c.batch), size("rows", c.rows),
          size("cols", c.cols)};
}

Cells cells(const ConcatCase& c) {
  return {kind("op", "concat"), type(c.dtype), size("rows", c.rows),
          size("cols", c.cols_a + c.cols_b), size("cols_a", c.cols_a)};
}

Cells cells(const GatherCase& c) {
  return {kind("op", c.scatter_add ? "scatter_add" : "gather"), type(c.dtype),
          size("rows", c.count), size("cols", c.cols), size("table_rows", c.table_rows)};
}

Cells cells(const TrilCase& c) {
  return {kind("op", "tril"), type(c.dtype), size("batch", c.batch), size("features", c.features),
          direction(c.pass)};
}

Cells cells(const HashedProductCase& c) {
  return {kind("op", "hashed_product"),
          type(DType::kFloat32),
          kind("scheme", c.by_elements ? "hashednet" : "roast"),
          size("m", c.m),
          size("n", c.n),
          size("k", c.k),
          size("elements", c.elements),
          kind("direction", c.weight_gradient ? "bwd_weights" : "fwd")};
}

Cells cells(const PeakCase& c) {
  using Kind = PeakCase::Kind;
  constexpr std::array<std::string_view, 11> kOps = {
      "copy_bandwidth", "read_bandwidth", "fma",         "matrix",    "launch",      "empty_kernel",
      "event_record",   "event_wait",     "stream_sync", "copy_call", "graph_launch"};
  Cells row = {kind("op", kOps[static_cast<std::size_t>(c.kind)])};
  if (c.kind == Kind::kFma || c.kind == Kind::kMatrix) row.push_back(type(c.dtype));
  if (c.bytes > 0) {
    const std::string_view column = c.kind == Kind::kMatrix        ? "m"
                                    : c.kind == Kind::kFma         ? "flop"
                                    : c.kind == Kind::kGraphLaunch ? "nodes"
                                                                   : "bytes";
    row.push_back(size(column, c.bytes));
  }
  return row;
}

}  // namespace

std::vector<Cell> cells_of(const Case& point) {
  return std::visit([](const auto& c) { return cells(c); }, point);
}

std::string name_of(const Case& point) {
  std::string name;
  for (const Cell& cell : cells_of(point)) {
    if (!name.empty()) name += ' ';
    if (cell.column != "op" && cell.column != "dtype") name += fmt::format("{}=", cell.column);
    name += cell.text;
  }
  return name;
}

std::string_view to_string(DType dtype) {
  constexpr std::array<std::string_view, 4> kNames = {"fp32", "tf32", "bf16", "fp16"};
  return kNames[static_cast<std::size_t>(dtype)];
}

}  // namespace kernels_bench
