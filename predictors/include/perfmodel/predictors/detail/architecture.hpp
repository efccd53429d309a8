#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/predictors/detail/nccl_tuning.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One tile of a matrix product, which a block of threads computes at a time. Its sides are powers
/// of two, kept as shifts, since a price looks at a few dozen tiles.
struct GemmTile {
  int log2_m = 7, log2_n = 7;
  double efficiency = 1;  ///< share of an SM's peak that a full wave of such blocks reaches
  double alone = 1;       ///< share of that which one block on an SM reaches
};

/// How the library multiplies matrices on matrix units in one type (docs/kernel_models.md).
struct MatrixGemm {
  std::vector<GemmTile> tiles;  ///< both orientations of each; `alone` is not used
  /// Operands that tiles get from L2 [bytes per boost clock and SM]. Bytes that neighbours read
  /// together count once, so this may exceed the rate of L2's ports.
  double l2_bytes_per_clock_per_sm = 0;
  double store_bytes_per_clock_per_sm = 0;  ///< rate of a tile's results, stored after its sums
  double latency_us = 0;          ///< least time of a product; counts twice where k is split
  double dram_share = 1;          ///< share of the data sheet's bandwidth, operands read once
  double picojoule_per_flop = 0;  ///< board power bounds long products with it
  /// Operands are still in L2 if this many times their bytes went by since; 0: they never are.
  double reuse_distance = 0;
  bool splits_k = true;     ///< few tiles share their sums among SMs; else whole waves of tiles run
  bool always_hot = false;  ///< measured at the power limit: it bounds short products too
};

/// Speed of TF32 products relative to aligned ones with an operand contiguous along k.
struct Tf32Shares {
  double across = 1;          ///< sums of aligned ones, neither operand contiguous along k
  double unaligned = 1;       ///< all of a product with rows that begin off multiples of 16 bytes
  double unaligned_sums = 1;  ///< its sums, on top
};

/// A kernel that quantises activations from bf16 in one pass (docs/kernel_models.md).
struct QuantizeKernel {
  double latency_us = 0;                 ///< least time of a kernel
  double elements_per_clock_per_sm = 0;  ///< per boost clock, where memory does not bound it
  double dram_share = 1;                 ///< share of the data sheet's bandwidth
};

/// By type and scaling. Empty if nothing was measured.
struct QuantizeKernels {
  std::optional<QuantizeKernel> fp8_tensor, fp8_token, fp8_block, fp4;
};

/// Generations of kernels for fused attention.
enum class AttentionGeneration : std::uint8_t {
  kFa2,        ///< FlashAttention-2, PyTorch's own
  kFa3,        ///< FlashAttention-3, for Hopper
  kFa4,        ///< FlashAttention-4, for Blackwell
  kTrtllm,     ///< TensorRT-LLM's generated kernels
  kCudnn,      ///< cuDNN's, which PyTorch calls on request
  kFramework,  ///< the framework's choice
};
/// In files and tables; `kFramework` has no name.
inline constexpr std::string_view kAttentionGenerationNames[] = {"fa2", "fa3", "fa4", "trtllm_gen",
                                                                 "cudnn"};

/// A block of an attention kernel computes one tile at a time, for heads of up to `head_dim`
/// elements: the scores of `q` rows of queries with `k` keys.
struct AttentionTile {
  double head_dim = 128, q = 128, k = 128;
  double share = 1;  ///< share of an SM's peak that a working block's products reach
};

/// One kernel of fused attention (docs/kernel_models.md). Backward: the three kernels of that pass
/// together; blocks own rows of k, and `tiles` are read the same way.
struct AttentionKernel {
  AttentionGeneration name = AttentionGeneration::kFa2;
  bool backward = false;
  bool paged = false;  ///< writes k and v to a paged cache first and reads them from there
  /// Measured in inference, without a mask, on the listed head sizes: other passes use the training
  /// kernel of that name, if there is one.
  bool without_mask = false;
  /// On this architecture. Else the constants are another one's, and the tiles' shares are
  /// multiplied by `attention_share`.
  bool measured = false;
  double launch_us = 0;   ///< least time of a call
  double block_us = 0;    ///< per block, besides its products
  double exposed = 0;     ///< share of the traffic's time that no product hides
  double alone = 1;       ///< speed of a block alone on its SM
  double split_us = 0;    ///< time of the kernel that adds up split keys; 0: keys are not split
  double q_sums = 0;      ///< backward: passes over the gradient of q in fp32, which blocks add up
  bool pack_gqa = false;  ///< heads that share keys may fill one tile together
  std::vector<AttentionTile> tiles;  ///< by head size, ascending
};

struct AttentionKernels {
  AttentionGeneration framework = AttentionGeneration::kFa2;  ///< the framework's default
  std::vector<AttentionKernel> list;  ///< holds one of the framework's; empty: none was measured
};

/// Libraries that compute a layer's experts.
enum class ExpertsLibrary : std::uint8_t {
  kTriton,   ///< SGLang's fused experts
  kCutlass,  ///< TensorRT-LLM's grouped products
  kTuned,    ///< AMD's fused kernels (aiter), the fastest of many for the shape
};
inline constexpr std::string_view kExpertsLibraryNames[] = {"triton", "cutlass", "tuned"};

/// A library's kernels for a layer's experts (docs/kernel_models.md).
struct ExpertsKernel {
  ExpertsLibrary name = ExpertsLibrary::kTriton;
  bool measured = false;  ///< on this architecture; else the constants are another one's
  double launch_us = 0;   ///< least time of a layer, all kernels together
  double expert_us = 0;   ///< per expert with rows: routing, and finding its rows
  double dram_share = 1;  ///< share of the data sheet's bandwidth, weights read once
  double l2_bytes_per_clock_per_sm = 0;  ///< operands that tiles get from L2
  double vector_share = 1;    ///< share of the bandwidth that kernels between the products reach
  double reuse_distance = 0;  ///< as in `MatrixGemm`, in bytes of all touched weights
  bool permutes = false;      ///< a kernel of its own sorts rows by expert
  /// The first tile serves up to as many tokens as experts, the last one more (SGLang's default
  /// without a tuned choice); else the best of all tiles counts.
  bool tile_by_tokens = false;
  std::vector<GemmTile> tiles;  ///< rows by columns; `alone` is not used
};

/// Time that a warm cache saves kernels whose prices assume inputs in DRAM: shares of the time
/// above an empty kernel's, if all bytes are held.
struct WarmInputs {
  double all_held = 0, none_held = 0;  ///< bytes touched since, over the cache's size
  double elementwise = 0, softmax = 0, norm = 0;
};

/// Rates of the kernels of gated delta networks (docs/kernel_models.md).
struct LinearAttentionRates {
  bool measured = false;  ///< on this architecture; else the figures are another one's
  // The causal convolution.
  double convolution_launch_us = 0;
  double convolution_elements_per_clock_per_sm = 0;
  double convolution_dram_share = 1;  ///< share of the reachable bandwidth
  // The gated delta rule, all its kernels together.
  double launch_us = 0;
  double first_chunk_us = 0;  ///< extra, once a sequence fills a chunk
  double chunk_us = 0;        ///< time of a chunk's step of the state, one after the other
  double states_per_sm = 1;   ///< states that advance at a time
  double unit_us = 0;         ///< time of a chunk of one head on one SM, all parallel kernels
  double dram_share = 1;      ///< share of the reachable bandwidth
};

/// Batches for which PyTorch asks cuDNN to keep a recurrent layer's weights in registers.
enum class PersistentRecurrent : std::uint8_t {
  kNone,
  kVolta,   ///< multiples of 16 except 80 and 112, and 8
  kAmpere,  ///< on 98 SMs or more, multiples of 8 up to 128; not for GRUs
};
inline constexpr std::string_view kPersistentRecurrentNames[] = {"none", "volta", "ampere"};

/// Boost clocks of one step of a library's recurrent layer besides its sums.
struct RecurrentStepCycles {
  double cell = 0;   ///< pointwise kernel and gaps between kernels, whatever the sizes
  double depth = 0;  ///< per element of the summed axis, which blocks walk one after the other
};
struct RecurrentCycles {
  bool measured = false;  ///< on this architecture
  RecurrentStepCycles forward, backward_data;
};

/// Elements that PyTorch's elementwise kernels get through per boost clock and SM, by variant; 0:
/// as many as memory delivers.
struct ElementwiseRates {
  double contiguous_bf16 = 0;  ///< bounds where bf16 is converted in several instructions
  double broadcast = 0, strided = 0, mixed_types = 0, upsample_3d = 0;
};

/// Kernels that find rows by index, in boost clocks.
struct IndexRates {
  double adds = 0, half_adds = 0;  ///< atomic adds of elements per clock and SM
  double hot_row = 0;              ///< between two adds to the same row
  double sorted_warp = 0;          ///< share of an SM, for a warp that adds a sorted run
  double block = 0;                ///< from one block's start to the next, on the whole GPU
};

/// Boards on which the heuristic of some kernels was fitted or checked. On an architecture without
/// any, their ranges are wider.
struct MeasuredKernels {
  std::string kernels;  ///< family, or family and type as model files are called: "gemm-bfloat16"
  std::vector<std::string> gpus;
};

/// Figures that all GPUs of one generation share and no data sheet gives, read from
/// `data/architectures/NAME.json`, which gives each figure's source (docs/formats.md).
///
/// A hand-made `Gpu` starts with a nameless architecture. Its figures keep the data sheet's rates,
/// and every price of a kernel is out of range.
struct Architecture {
  std::string name;                  ///< "ampere", as the GPU file says
  std::string like;                  ///< the known one whose figures count instead; empty: its own
  std::string vendor;                ///< "nvidia" or "amd"
  std::vector<std::string> targets;  ///< compilers' names: "sm_80", "gfx90a"

  // Shares of the data sheet's DRAM bandwidth that long streams reach. GDDR of server boards checks
  // errors in band, which costs some bandwidth; gaming boards do not.
  double hbm_share = 1, gddr_share = 1, unchecked_gddr_share = 1;
  /// Reachable bandwidth of L2, all SMs together; never taken to be below DRAM's.
  double l2_bytes_per_clock_per_sm = 0;
  /// The same for a last-level cache beyond L2; 0: as fast as L2.
  double last_level_bytes_per_clock_per_sm = 0;
  double fp32_picojoule_per_flop = 0;  ///< dense GEMM on vector units; 0: power limits nothing
  // See power.hpp.
  double dram_picojoule_per_byte = 0;  ///< energy of traffic, the way to the SMs included
  double idle_power_share = 0.2;       ///< share of the board's limit, drawn whatever the work
  /// Device memory of a process outside the allocator: context, loaded kernels.
  std::int64_t context_bytes = 0;
  std::int64_t blas_workspace_bytes = 0;  ///< PyTorch's, per BLAS handle and stream
  /// The most memory that libraries take and no graph shows: a running convolution, and the
  /// channels of an NCCL communicator.
  std::int64_t convolution_workspace_bytes = 0, collective_buffer_bytes = 0;
  /// Share of the data sheet's memory that programs see, unless the GPU file gives it.
  double usable_memory_share = 1;
  int max_blocks_per_sm = 32;  ///< resident at once; in a `Gpu` from a file, its target's
  std::map<std::string, int, std::less<>> max_blocks_of_targets = {};  ///< exceptions

  // Tiles of the library of matrix products: on vector units for one product, for batches (empty:
  // the same), and on matrix units.
  std::vector<GemmTile> gemm_tiles = {GemmTile{}}, batched_gemm_tiles = {},
                        matrix_gemm_tiles = {GemmTile{}};
  /// Measured products on matrix units: fp16, bf16 and TF32; fp8, also with a scale per token or
  /// block; fp4. An unmeasured type uses fp8's figures, else fp16's; if all are empty, only
  /// `matrix_gemm_tiles` count.
  std::optional<MatrixGemm> matrix_gemm, matrix_gemm_fp8, matrix_gemm_fp8_token,
      matrix_gemm_fp8_block, matrix_gemm_fp4;
  /// Rate of the older kernels that compute unaligned 16-bit products (a row of A, B or C does not
  /// begin at a multiple of 16 bytes); 0: the same kernels as for others.
  double unaligned_half_gemm_flop_per_clock_per_sm = 0;
  Tf32Shares tf32_gemm_shares;
  QuantizeKernels quantize;

  ElementwiseRates elementwise_rates;
  IndexRates index_rates;
  // Norms, in clocks of one SM. 0: bound by their bytes alone.
  /// Per row of a layer norm; in half types. On NVIDIA PyTorch's other row kernels scale with it.
  double norm_row_clocks = 0, half_norm_row_clocks = 0;
  double channel_element_clocks = 0;  ///< per element of a batch norm's channel, one block each
  /// Layout changes round convolutions on matrix units [elements per boost clock and SM]. NVIDIA:
  /// of each transposed tensor, in tiles of 32 x 32, where memory does not bound them; AMD: of
  /// input and output. 0: by bytes alone (NVIDIA), one more pass over the tensors (AMD).
  double convolution_layout_rate = 0;

  /// Share of the matrix units' peak that the framework's attention kernels reach here, relative to
  /// FlashAttention-2 on Ampere.
  double attention_share = 1;
  AttentionKernels attention_kernels;
  std::vector<ExpertsKernel> experts_kernels;  ///< empty: none is known
  std::optional<WarmInputs> warm_inputs;       ///< none: prices know the cache
  std::optional<LinearAttentionRates> linear_attention;
  /// None: the libraries of 2016 to 2018 count (`price/kernels/recurrent.cpp`).
  std::optional<RecurrentCycles> recurrent_cycles;
  PersistentRecurrent persistent_recurrent = PersistentRecurrent::kNone;
  bool recurrent_measured = false;      ///< the model of recurrent layers was fitted here
  bool slow_recurrent_batches = false;  ///< backward kernels are slow for batches of 17 to 32
  NcclGeneration nccl_generation = NcclGeneration::kVolta;  ///< row of NCCL's tables
  std::vector<MeasuredKernels> measured_kernels;

  /// Whether the figures are its own. If not, prices are out of range.
  bool is_known() const { return !name.empty() && like.empty(); }
};

/// One file. A figure may refer to another architecture, whose file is looked for in the folder
/// `others`; empty: next to `file`. Errors name the missing or odd field.
Result<Architecture> read_architecture(const std::filesystem::path& file,
                                       const std::filesystem::path& others = {});

/// By name in a folder, `architectures` of the data folder. An unknown name is an error that lists
/// the nearest known ones.
Result<Architecture> find_architecture(std::string_view name, const std::filesystem::path& folder);

/// Every architecture of a folder, sorted by name. A name that is not the file's is an error.
Result<std::vector<Architecture>> read_architectures(const std::filesystem::path& folder);

}  // namespace perfmodel
