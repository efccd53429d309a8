#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/predictors/detail/nccl_tuning.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One tile of a matrix product: what a block of threads computes at a time. Its sides are powers
/// of two, kept as shifts: a price looks at a few dozen tiles.
struct GemmTile {
  int log2_m = 7, log2_n = 7;
  double efficiency = 1;  ///< share of an SM's peak that a full wave of such blocks reaches
  double alone = 1;       ///< share of that which one block on an SM reaches
};

/// How the library multiplies matrices on matrix units in one type (docs/kernel_models.md).
struct MatrixGemm {
  std::vector<GemmTile> tiles;  ///< both orientations of each; `alone` is not used
  /// Operands that tiles get from L2 [bytes per boost clock and SM]. What neighbours read together
  /// counts once, so this may exceed what L2's ports deliver.
  double l2_bytes_per_clock_per_sm = 0;
  double store_bytes_per_clock_per_sm = 0;  ///< at which a tile's results leave, after its sums
  double latency_us = 0;  ///< of a product whose work takes no time; once more where k is split
  double dram_share = 1;  ///< of the data sheet's bandwidth, operands read once
  double picojoule_per_flop = 0;  ///< with which board power bounds the rate of long products
  /// Operands are still in L2 if this many times their bytes went by since; 0: they never are.
  double reuse_distance = 0;
  bool splits_k = true;     ///< few tiles share their sums among SMs; else whole waves of tiles run
  bool always_hot = false;  ///< measured at the power limit: it bounds short products too
};

/// Elements that PyTorch's elementwise kernels get through per boost clock and SM, by variant; 0:
/// as many as memory delivers.
struct ElementwiseRates {
  double contiguous_bf16 = 0;  ///< bounds where bf16 is converted in several instructions
  double broadcast = 0, strided = 0, mixed_types = 0;
};

/// What all GPUs of one generation have in common and no data sheet says. It is read from
/// `data/architectures/NAME.json`, where each figure stands beside its source (docs/formats.md).
///
/// A `Gpu` that is made by hand has one without a name until somebody gives it one. Its figures
/// take nothing off the data sheet, and every price of a kernel is out of range.
struct Architecture {
  std::string name;    ///< "ampere", as the GPU file says
  std::string like;    ///< the known one whose figures stand in for those of `name`; empty: its own
  std::string vendor;  ///< "nvidia" or "amd"
  std::vector<std::string> targets;  ///< of compilers: "sm_80", "gfx90a"

  // Shares of the data sheet's DRAM bandwidth that long streams reach. GDDR of server boards checks
  // errors in band, which costs some of it; boards for gamers do without.
  double hbm_share = 1, gddr_share = 1, unchecked_gddr_share = 1;
  /// Reachable bandwidth of L2, all SMs together; never taken to be below that of DRAM.
  double l2_bytes_per_clock_per_sm = 0;
  /// The same of a last-level cache behind L2; 0: as fast as L2.
  double last_level_bytes_per_clock_per_sm = 0;
  double fp32_picojoule_per_flop = 0;  ///< of a dense GEMM on vector units; 0: power limits nothing
  int max_blocks_per_sm = 32;          ///< resident at once

  // Tiles that the library of matrix products has: on vector units, for one product and for
  // batches of them (empty: the same), and on matrix units.
  std::vector<GemmTile> gemm_tiles = {GemmTile{}}, batched_gemm_tiles = {},
                        matrix_gemm_tiles = {GemmTile{}};
  /// What was measured of products on matrix units: of fp16, bf16 and TF32, and of fp8. Empty where
  /// nothing was; then `matrix_gemm_tiles` are all there is.
  std::optional<MatrixGemm> matrix_gemm, matrix_gemm_fp8;

  ElementwiseRates elementwise_rates;
  // Norms, in clocks of one SM. 0: bound by their bytes alone.
  double norm_row_clocks = 0, half_norm_row_clocks = 0;  ///< of a row; of half types
  double channel_element_clocks = 0;  ///< of an element of a batch norm's channel, one block each
  /// Layout changes round convolutions in half types [elements per boost clock and SM]; 0: counted
  /// as one more pass over the tensors.
  double convolution_layout_rate = 0;

  /// What the attention kernels that a framework has here reach of the peak of matrix units,
  /// relative to FlashAttention-2 on Ampere.
  double attention_share = 1;
  bool recurrent_measured = false;      ///< the model of recurrent layers was fitted here
  bool slow_recurrent_batches = false;  ///< backward kernels of batches of 17 to 32 are slow ones
  NcclGeneration nccl_generation = NcclGeneration::kVolta;  ///< row of NCCL's tables

  /// Whether the figures are its own. Prices are out of range where they are not.
  bool is_known() const { return !name.empty() && like.empty(); }
};

/// One file. A figure may be that of another architecture, whose file is looked for in the folder
/// `others`; empty: in that of the file. Errors name the missing or odd field.
Result<Architecture> read_architecture(const std::filesystem::path& file,
                                       const std::filesystem::path& others = {});

/// By name in a folder, `architectures` of the data folder. An unknown name is an error that lists
/// the nearest known ones.
Result<Architecture> find_architecture(std::string_view name, const std::filesystem::path& folder);

/// Every architecture of a folder, sorted by name. A name that is not the file's is an error.
Result<std::vector<Architecture>> read_architectures(const std::filesystem::path& folder);

}  // namespace perfmodel
