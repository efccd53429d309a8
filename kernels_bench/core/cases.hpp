#pragma once

#include <cstdint>
#include <variant>

/// Cases that a microbenchmark measures. Plain structs without methods: the program plans them,
/// tables name their members, and the modules for CUDA and HIP run them.
namespace kernels_bench {

/// kTf32: tensors of fp32, products on the tensor cores.
enum class DType : std::uint8_t { kFloat32, kTf32, kBFloat16, kFloat16 };

enum class Pass : std::uint8_t { kForward, kBackward };

/// C[b, m, n] = op(A)[b, m, k] op(B)[b, k, n], row-major; a transposed operand is stored with its
/// two axes swapped. Half types multiply into fp32 and store halves.
struct GemmCase {
  DType dtype = DType::kFloat32;
  bool batched = false;  ///< the strided batched call, also when batch is 1
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  bool bias = false;  ///< epilogue adds a vector of n (a linear layer)
};

/// Cross-correlation, NCHW, square filter, `pad` zeros on each side.
struct ConvolutionCase {
  enum class Direction : std::uint8_t { kForward, kInputGradient, kWeightGradient };
  DType dtype = DType::kFloat32;
  Direction direction = Direction::kForward;
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, filter = 1, pad = 0, stride = 1;
};

/// Table-batched embedding bag (sum): `tables` tables [rows, dim] side by side, `batch` bags per
/// table of exactly `pooling` lookups, 8-byte indices; output [batch, tables * dim] in fp32.
struct EmbeddingCase {
  enum class Optimizer : std::uint8_t { kSgd, kRowWiseAdagrad };
  DType weights = DType::kFloat32;  ///< kFloat32 or kFloat16
  Pass pass = Pass::kForward;
  Optimizer optimizer = Optimizer::kSgd;  ///< used by the backward pass, which updates the rows
  std::int64_t tables = 1, rows = 0, batch = 0, pooling = 1, dim = 0;
  double zipf_exponent = 0;  ///< row k is read with probability ~ (k + 1)^-s, shuffled; 0: uniform
};

/// Copies and sets by the runtime, and one kernel: rows of half the pitch gathered into one block.
struct MemoryCase {
  enum class Kind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kSet, kStrided };
  Kind kind = Kind::kDeviceToDevice;
  bool pinned = true;          ///< host side
  std::int64_t bytes = 0;      ///< bytes of the copy, counted once
  std::int64_t row_bytes = 0;  ///< kStrided: a run of this many bytes, as many left out
};

/// One result per element from 1 to 3 input tensors of the same size.
struct ElementwiseCase {
  enum class Op : std::uint8_t {
    kRelu,
    kGelu,
    kTanh,
    kSigmoid,
    kExp,
    kAddScalar,
    kAdd,
    kMul,
    kAddcmul
  };
  Op op = Op::kRelu;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0, cols = 0;
};

/// Rows of [rows, cols] that are combined or normalised.
struct RowCase {
  enum class Op : std::uint8_t { kSum, kMax, kSoftmax, kLayerNorm };
  Op op = Op::kSum;
  Pass pass =
      Pass::kForward;  ///< kSoftmax, kLayerNorm. Layer norm's backward: the input's gradient
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0, cols = 0;  ///< `rows` results (or normalised rows) of `cols` elements each
  bool strided = false;  ///< kSum, kMax: the tensor is [cols, rows], combined over its outer axis
};

/// Training-mode batch norm of [images, channels, pixels], statistics per channel.
struct BatchNormCase {
  Pass pass = Pass::kForward;
  DType dtype = DType::kFloat32;
  std::int64_t images = 0, channels = 0, pixels = 0;
};

/// p = 0.5 by a counter-based generator; forward writes a byte mask next to the output.
struct DropoutCase {
  Pass pass = Pass::kForward;
  DType dtype = DType::kFloat32;
  std::int64_t elements = 0;
};

/// [batch, rows, cols] to [batch, cols, rows].
struct TransposeCase {
  DType dtype = DType::kFloat32;
  std::int64_t batch = 1, rows = 0, cols = 0;
};

/// [rows, cols_a] and [rows, cols_b] side by side to [rows, cols_a + cols_b].
struct ConcatCase {
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0, cols_a = 0, cols_b = 0;
};

/// `count` rows of a [table_rows, cols] table by uniform 8-byte indices: read into a block, or a
/// block added to them (atomically).
struct GatherCase {
  bool scatter_add = false;
  DType dtype = DType::kFloat32;  ///< scatter_add: kFloat32
  std::int64_t table_rows = 0, count = 0, cols = 0;
};

/// DLRM: strictly lower triangles of `batch` square matrices of `features` rows, packed; backward
/// writes them back into zeroed matrices.
struct TrilCase {
  Pass pass = Pass::kForward;
  DType dtype = DType::kFloat32;
  std::int64_t batch = 0, features = 0;
};

/// y[m, n] = x[m, k] W[k, n] or the gradient of W, fp32; W is hashed into an array of `elements`
/// numbers, by tiles of 32 x 64 or by elements.
struct HashedProductCase {
  bool by_elements = false, weight_gradient = false;
  std::int64_t m = 0, n = 0, k = 0, elements = 0;
};

/// Peaks and fixed costs of device and runtime.
struct PeakCase {
  enum class Kind : std::uint8_t {
    kCopyBandwidth,  ///< own copy kernel, `bytes` read and as many written
    kReadBandwidth,  ///< working set of `bytes` read again and again: L2 where it fits, else DRAM
    kFma,            ///< chains of multiply-adds in registers, `bytes` FLOP in all
    kMatrix,         ///< large square GEMM, m = n = k = `bytes` elements
    kLaunch,         ///< host time of one kernel launch call
    kEmptyKernel,    ///< device time per launch of empty kernels back to back
    kEventRecord,    ///< host time of the call
    kEventWait,      ///< device time from a record on one stream to the end of a wait on another
    kStreamSync,     ///< host time of synchronising an idle stream
    kCopyCall,       ///< host time of an asynchronous pinned copy call of `bytes`
    kGraphLaunch,    ///< host time of launching a graph of `bytes` empty kernels
  };
  Kind kind = Kind::kCopyBandwidth;
  DType dtype = DType::kFloat32;  ///< kFma, kMatrix
  std::int64_t bytes = 0;         ///< or a count, where the kind says so
};

using Case = std::variant<GemmCase, ConvolutionCase, EmbeddingCase, MemoryCase, ElementwiseCase,
                          RowCase, BatchNormCase, DropoutCase, TransposeCase, ConcatCase,
                          GatherCase, TrilCase, HashedProductCase, PeakCase>;

constexpr int bytes_of(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kTf32 ? 4 : 2;
}

}  // namespace kernels_bench
