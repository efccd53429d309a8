#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

enum class KernelFamily : std::uint8_t {
  kGemm,
  kConvolution,
  kEmbeddingForward,
  kEmbeddingBackward,
  kElementwise,
  kReduction,
  kSoftmax,
  kNorm,
  kPooling,
  kDropout,
  kTranspose,
  kIndex,
  kInteraction,
  kSort,
  kConcat,
  kOptimizer,
  kAttention,
  kRecurrent,
  kCopy,
  kSet,
  kCollective,
  kSmall,
};
std::string_view to_string(KernelFamily family);

/// What a recorded kernel does, by its name ("volta_sgemm_64x64_nt": GEMM), for reports of traces.
/// Nothing for names that say nothing.
std::optional<KernelFamily> kernel_family_of_name(std::string_view name);

/// C[b, m, n] = A[b, m, k] B[b, k, n], row-major; `batch` 1 for plain GEMM. A transposed operand
/// lies in memory with its two axes swapped (a linear layer's weight: `b_transposed`).
struct GemmShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  bool has_bias = false;  ///< epilogue adds a vector of n
};

/// Direct convolution, NCHW; `c`, `k` channels in and out, `r` x `s` filter, `p` x `q` output.
struct ConvolutionShape {
  enum class Pass : std::uint8_t { kForward, kInputGradient, kWeightGradient } pass;
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, r = 1, s = 1, p = 0, q = 0, groups = 1;
  std::int64_t stride = 1;
};

/// Table-batched embedding bag; averages where tables differ (dim, rows) and totals where said.
struct EmbeddingShape {
  std::int64_t batch = 0, num_tables = 1;
  double num_rows = 0;        ///< rows per table (mean)
  double dim = 0;             ///< elements per row (mean)
  double pooling_factor = 0;  ///< lookups per bag (mean)
  int weight_bytes = 4, index_bytes = 8, output_bytes = 4;
  double optimizer_bytes_per_row = 0;  ///< state read and written per touched row (backward)
  /// Skew of the indices (see `ZipfLaw` in index_skew.hpp): row k of a table is read with a
  /// probability proportional to (k + zipf_shift)^-zipf_exponent; 0 is uniform. Raises cache hits,
  /// lowers the distinct rows.
  double zipf_exponent = 0, zipf_shift = 0;
};

/// Scaled dot-product attention: q [batch, heads, seq_q, head_dim], k and v [batch, heads, seq_k,
/// head_dim].
struct AttentionShape {
  enum class Method : std::uint8_t { kMath, kFlash } method = Method::kFlash;
  enum class Pass : std::uint8_t { kForward, kBackward } pass = Pass::kForward;
  std::int64_t batch = 0, heads = 0, seq_q = 0, seq_k = 0, head_dim = 0;
  bool causal = false;
  std::int64_t kv_heads = 0;  ///< of k and v, shared by groups of q's heads; 0: as many as q has
};

/// One layer, one direction of a recurrent network as a library runs it; the input's product is not
/// included (`DeepBench`'s convention).
struct RecurrentShape {
  enum class Cell : std::uint8_t { kPlain, kLstm, kGru } cell = Cell::kLstm;
  enum class Pass : std::uint8_t {
    kForward,
    kBackward,
    kBackwardData,
    kBackwardWeights
  } pass = Pass::kForward;
  std::int64_t hidden = 0, batch = 0, timesteps = 0;
};

enum class CopyKind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kPeer };
struct CopyShape {
  CopyKind kind = CopyKind::kDeviceToDevice;
  bool pageable = true;  ///< host side not pinned
  /// A kernel that gathers runs of this many bytes, as many left out after each; 0: one whole
  /// block.
  std::int64_t run_bytes = 0;
};

struct CollectiveShape {
  std::string kind;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...
  std::int64_t world_size = 1;  ///< 0: not recorded
  /// Of the job, who take part; empty: not recorded, taken as neighbours from the first rank on.
  std::vector<std::int64_t> ranks = {};
};

/// Independent rows of a reduction, softmax or norm: few rows leave SMs idle.
struct RowShape {
  std::int64_t rows = 0;  ///< results, or rows that are normalised separately
  std::int64_t cols = 0;  ///< elements that are combined per row
  /// Reductions over an outer axis: the tensor is [cols, rows], the elements of a row lie apart.
  bool is_strided = false;
  bool is_channel = false;      ///< batch norm: rows are channels, one block for each at worst
  std::int64_t table_rows = 0;  ///< gather, scatter: rows of the whole table; 0: not known
  std::int64_t batch = 1;       ///< transpose: matrices that `rows` counts the rows of
};

/// How the tensors of an elementwise kernel lie to each other; each has a variant of its own in
/// PyTorch.
enum class Layout : std::uint8_t {
  kContiguous,  ///< vectors of elements, one index for all tensors
  kBroadcast,   ///< an input is smaller than the result: an offset per element
  kStrided,     ///< a tensor is no dense block: offsets too, and accesses that lie apart
  kMixedTypes,  ///< element types differ: one element at a time, converted on its way
};
std::string_view to_string(Layout layout);  ///< "contiguous", "broadcast", "strided", "mixed types"

/// What one kernel (or copy, or set) has to do: the input of every kernel model.
struct KernelWork {
  KernelFamily family = KernelFamily::kSmall;
  DType dtype = DType::kFloat32;
  bool matrix_units = false;  ///< may use tensor or matrix cores (TF32 allowed, half types)
  Flop flop = {};
  Bytes bytes_read = {}, bytes_written = {};
  std::variant<std::monostate, GemmShape, ConvolutionShape, EmbeddingShape, CopyShape,
               CollectiveShape, RowShape, AttentionShape, RecurrentShape>
      shape = {};
  Layout layout = Layout::kContiguous;  ///< of elementwise kernels

  Bytes bytes() const { return bytes_read + bytes_written; }
};

enum class Bound : std::uint8_t { kCompute, kMemory, kLatency, kLink, kMeasured };
std::string_view to_string(Bound bound);

/// A kernel's time with its reasons. Launch cost is not part of it.
struct Price {
  Microseconds time{0};
  Microseconds low{0}, high{0};                    ///< expected range
  Microseconds compute{0}, memory{0}, latency{0};  ///< terms; `time` is no plain sum of them
  Bound bound = Bound::kLatency;
  std::string_view model = "";  ///< static name of the model that spoke
  bool in_range = true;         ///< inside the range that the model was fitted or checked on
};

/// Prices the kernels of one or more families. Implementations are immutable and thread-safe.
class KernelModel {
 public:
  virtual ~KernelModel() = default;
  virtual Price price(const KernelWork& work, const Gpu& gpu) const = 0;

  /// prices[i] = price(work[i], gpu), to the bit; as many prices as work. Models that are faster on
  /// many kernels at once override it.
  virtual void price_many(std::span<const KernelWork> work, const Gpu& gpu,
                          std::span<Price> prices) const;
};

/// Knows one model per family. `heuristic` is this project's default; `roofline` is the plain
/// baseline max(flop / peak, bytes / bandwidth) that every accuracy table shows beside it.
class KernelModels {
 public:
  static const KernelModels& heuristic();
  static const KernelModels& roofline();

  const KernelModel& model(KernelFamily family) const {
    return *models_[static_cast<std::size_t>(family)];
  }
  /// Out of range on a GPU whose architecture nobody knows, whatever the model says.
  Price price(const KernelWork& work, const Gpu& gpu) const {
    Price price = model(work.family).price(work, gpu);
    price.in_range &= gpu.architecture.is_known();
    return price;
  }
  /// prices[i] = price(work[i], gpu), to the bit; as many prices as work. Kernels of one family go
  /// to its model together, in any order they come.
  void price_many(std::span<const KernelWork> work, const Gpu& gpu, std::span<Price> prices) const;
  void set(KernelFamily family, const KernelModel* model) {
    models_[static_cast<std::size_t>(family)] = model;
  }

 private:
  void price_families(std::span<const KernelWork> work, const Gpu& gpu,
                      std::span<Price> prices) const;
  std::array<const KernelModel*, static_cast<std::size_t>(KernelFamily::kSmall) + 1> models_{};
};

}  // namespace perfmodel
