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
  kGroupedGemm,
  kExperts,
  kLinearAttention,
  kRecurrent,
  kCopy,
  kSet,
  kCollective,
  kQuantize,
  kPart,  ///< a further kernel of an op, whose time the op's main kernel includes
  kSmall,
};
std::string_view to_string(KernelFamily family);
std::optional<KernelFamily> parse_kernel_family(std::string_view name);

/// Family of a recorded kernel by its name ("volta_sgemm_64x64_nt": GEMM), for reports of traces.
/// Nothing if the name does not tell.
std::optional<KernelFamily> kernel_family_of_name(std::string_view name);

/// Which elements of a type of 8 or 4 bits share a scale: a whole tensor, a token (a row
/// of the activations, a column of the weights), or a block: 128 elements of a row and 128 x 128
/// weights in 8 bits, 16 elements of a row in 4 bits (nvfp4).
enum class Scaling : std::uint8_t { kTensor, kToken, kBlock };
std::string_view to_string(Scaling scaling);  ///< "tensor", "token", "block"

/// C[b, m, n] = A[b, m, k] B[b, k, n], row-major; `batch` 1 for plain GEMM. A transposed operand is
/// in memory with its two axes swapped (a linear layer's weight: `b_transposed`).
struct GemmShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  bool has_bias = false;               ///< epilogue adds a vector of n
  Scaling scaling = Scaling::kTensor;  ///< for operands of 8 and 4 bits; sizes count numbers
  /// Includes the kernel that quantises A from bf16, as tables time a linear layer.
  bool quantizes_a = false;
};

/// A linear layer whose weight [k, n] is not stored: its elements are looked up by a hash in an
/// array of `elements` numbers, tile by tile (ROAST) or one by one (HashedNet). x is [m, k], y [m,
/// n].
struct HashedProductShape {
  enum class Scheme : std::uint8_t { kTiles, kElements } scheme = Scheme::kTiles;
  /// The weight's gradient, added to the array's; else y = x W (the gradient of x is such a
  /// product, too).
  bool is_weight_gradient = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t elements = 0;
  std::int64_t tile_k = 32, tile_n = 64;  ///< one run in the array; unused for single elements
};

/// Direct convolution; `c`, `k` channels in and out, `r` x `s` filter, `p` x `q` output.
struct ConvolutionShape {
  enum class Pass : std::uint8_t { kForward, kInputGradient, kWeightGradient } pass;
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, r = 1, s = 1, p = 0, q = 0, groups = 1;
  std::int64_t stride = 1;
  /// Images are NHWC, as matrix units read them. Else (NCHW) the library transposes them for
  /// kernels on matrix units, and the results back.
  bool channels_last = false;
};

/// Table-batched embedding bag; averages over tables (dim, rows) unless noted.
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
  /// PyTorch's own bags: a warp walks 32 elements of a bag, one row after the other. Else several
  /// rows are in flight, as in FBGEMM.
  bool is_serial = false;
};

/// Scaled dot-product attention: q [batch, heads, seq_q, head_dim], k and v [batch, heads, seq_k,
/// head_dim].
struct AttentionShape {
  enum class Method : std::uint8_t { kMath, kFlash } method = Method::kFlash;
  enum class Pass : std::uint8_t { kForward, kBackward } pass = Pass::kForward;
  std::int64_t batch = 0, heads = 0, seq_q = 0, seq_k = 0, head_dim = 0;
  bool causal = false;
  bool dropout = false;       ///< probabilities drop out: a random number per score
  std::int64_t kv_heads = 0;  ///< shared by groups of q's heads; 0: as many as q has
  /// Flash, forward: k and v are written to a paged cache first and read from there, as servers do.
  bool writes_cache = false;
  AttentionGeneration kernel = AttentionGeneration::kFramework;
};

/// Rows sorted by group, each group times its own matrix, in one kernel (a layer's experts, say):
/// C[r, :] = A[r, :] B[group of r], B [groups, k, n].
struct GroupedGemmShape {
  std::int64_t groups = 0;  ///< matrices; with fewer rows than groups, some are untouched
  std::int64_t rows = 0;    ///< all groups together
  std::int64_t n = 0, k = 0;
  double imbalance = 1;  ///< rows of the largest group over the mean of all groups; at least 1
};

/// The experts of one layer on one GPU: routing, permutation, two grouped products (gate and up
/// together, then down) with SiLU and a product between, the weighted sum of each token's experts.
struct ExpertsShape {
  ExpertsLibrary kernel = ExpertsLibrary::kTriton;
  std::int64_t tokens = 0, hidden = 0;
  std::int64_t inter = 0;  ///< one expert's on this GPU: its share if tensors are sharded
  std::int64_t experts = 0, topk = 0;
  /// Distribution of tokens over experts: at random, as even as possible, or drawn from a power law
  /// with this exponent (see `expert_load` in expert_load.hpp).
  enum class Routing : std::uint8_t { kRandom, kBalanced, kPowerLaw } routing = Routing::kRandom;
  double power_law = 0;
};

/// One kernel of a gated delta network's prefill (linear attention), [batch, seq] tokens.
struct LinearAttentionShape {
  enum class Kernel : std::uint8_t {
    kConvolution,  ///< causal, one filter per channel, of q, k and v together
    kChunkedRule,  ///< the gated delta rule in chunks of tokens: several kernels in a row
  } kernel = Kernel::kChunkedRule;
  std::int64_t batch = 0, seq = 0, k_heads = 0, k_dim = 0, v_heads = 0, v_dim = 0;
  std::int64_t filter = 0;  ///< taps of the convolution
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
  std::int64_t layers = 1;  ///< above 1: equal layers whose steps run side by side (a wavefront)
  bool persistent = false;  ///< weights stay in registers; blocks wait for each other at each step
};

enum class CopyKind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kPeer };
struct CopyShape {
  CopyKind kind = CopyKind::kDeviceToDevice;
  bool pageable = true;  ///< host side not pinned
  /// A kernel gathers runs of this many bytes with gaps of the same size; 0: one whole block.
  std::int64_t run_bytes = 0;
  bool aside = false;  ///< on a stream of its own, after all earlier work of the caller's stream
};

struct CollectiveShape {
  std::string kind;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...
  std::int64_t world_size = 1;  ///< 0: not recorded
  /// Participating ranks of the job; empty: not recorded, taken as neighbours from the first rank
  /// on.
  std::vector<std::int64_t> ranks = {};
};

/// How a kernel uses the rows that indices select.
enum class RowAccess : std::uint8_t {
  kRead,       ///< a gather
  kAdd,        ///< a scatter by atomic adds
  kSortedAdd,  ///< indices are sorted first; a warp adds all values of a row
};

/// Independent rows of a reduction, softmax or norm: few rows leave SMs idle.
struct RowShape {
  std::int64_t rows = 0;  ///< results, or rows that are normalised separately
  std::int64_t cols = 0;  ///< elements that are combined per row
  /// Reductions over an outer axis: the tensor is [cols, rows], and a row's elements are not
  /// contiguous.
  bool is_strided = false;
  bool is_channel = false;        ///< batch norm: rows are channels, one block for each at worst
  bool is_rms = false;            ///< a norm of mean squares in one kernel
  bool is_log = false;            ///< log_softmax: other kernels than softmax's
  bool is_cudnn = false;          ///< batch norm by cuDNN or MIOpen; else PyTorch's own kernels
  bool is_channels_last = false;  ///< batch norm: a channel's elements are not contiguous
  std::int64_t table_rows = 0;    ///< gather, scatter: rows of the whole table; 0: not known
  RowAccess access = RowAccess::kRead;
  double zipf_exponent = 0;  ///< gather, scatter: skew of the indices (`ZipfLaw`); 0: uniform
  /// Transpose: matrices, whose rows `rows` counts together. Batch norm: images; 1: not known.
  std::int64_t batch = 1;
  Scaling scaling = Scaling::kTensor;  ///< quantise: tensors whose scale is known take one pass
};

/// Relative layout of an elementwise kernel's tensors; PyTorch has a variant for each.
enum class Layout : std::uint8_t {
  kContiguous,   ///< vectors of elements, one index for all tensors
  kBroadcast,    ///< an input is smaller than the result: an offset per element
  kStrided,      ///< a tensor is a slice of a larger one: offsets too
  kTransposed,   ///< a tensor is read across its rows: neighbours share no sector
  kMixedTypes,   ///< element types differ: one element at a time, converted on its way
  kUpsampled3d,  ///< read from a coarser grid in three dimensions: divisions for each element
  kGenerated,    ///< no variant of PyTorch's: a compiler wrote the kernel for these tensors
};
/// "contiguous", "broadcast", "strided", "transposed", "mixed types", "upsampled 3d", "generated"
std::string_view to_string(Layout layout);

/// The work of one kernel (or copy, or set): the input of every kernel model.
struct KernelWork {
  KernelFamily family = KernelFamily::kSmall;
  DType dtype = DType::kFloat32;
  bool matrix_units = false;  ///< may use tensor or matrix cores (TF32 allowed, half types)
  Flop flop = {};
  Bytes bytes_read = {}, bytes_written = {};
  std::variant<std::monostate, GemmShape, ConvolutionShape, EmbeddingShape, CopyShape,
               CollectiveShape, RowShape, AttentionShape, RecurrentShape, GroupedGemmShape,
               ExpertsShape, LinearAttentionShape, HashedProductShape>
      shape = {};
  Layout layout = Layout::kContiguous;  ///< for elementwise kernels

  Bytes bytes() const { return bytes_read + bytes_written; }
};

/// Whether it multiplies matrices of a type that the GPU's matrix units lack. It is then priced in
/// a wider type, out of range.
bool lacks_units(const KernelWork& work, const Gpu& gpu);
/// Whether it multiplies matrices of a half type, or in TF32, that the GPU computes in fp32, as
/// Volta and Turing do with bf16 and most of Pascal with fp16. It is priced at fp32's rate, out of
/// range.
bool computes_in_fp32(const KernelWork& work, const Gpu& gpu);

enum class Bound : std::uint8_t { kCompute, kMemory, kLatency, kLink, kMeasured };
std::string_view to_string(Bound bound);

/// How near to the priced GPU a model was measured: the nearest of these. Ranges are calibrated for
/// each.
enum class Knowledge : std::uint8_t {
  kNone,          ///< no GPU of its architecture: the data sheet alone
  kArchitecture,  ///< another chip of its architecture
  kChip,          ///< another board with the same chip: other memory, clocks, power
  kBoard,         ///< this board
};
inline constexpr std::size_t kKnowledgeLevels = 4;
std::string_view to_string(Knowledge knowledge);  ///< "none", "architecture", "chip", "board"

/// A kernel's time with its reasons. Launch cost is not part of it.
struct Price {
  Microseconds time{0};
  Microseconds low{0}, high{0};                    ///< expected range
  Microseconds compute{0}, memory{0}, latency{0};  ///< terms; `time` is no plain sum of them
  Bound bound = Bound::kLatency;
  std::string_view model = "";  ///< static name of the model that priced it
  bool in_range = true;         ///< inside the range that the model was fitted or checked on
  /// Nothing for a given or traced time, or if the model does not say.
  std::optional<Knowledge> knowledge = {};
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
/// baseline max(flop / peak, bytes / bandwidth) that every accuracy table shows for comparison.
class KernelModels {
 public:
  static const KernelModels& heuristic();
  static const KernelModels& roofline();

  const KernelModel& model(KernelFamily family) const {
    return *models_[static_cast<std::size_t>(family)];
  }
  /// Out of range on a GPU whose architecture is unknown, or which multiplies the type in another
  /// one, whatever the model says.
  Price price(const KernelWork& work, const Gpu& gpu) const {
    Price price = model(work.family).price(work, gpu);
    price.in_range &=
        gpu.architecture.is_known() && !lacks_units(work, gpu) && !computes_in_fp32(work, gpu);
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
