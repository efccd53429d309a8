#pragma once

#include "perfmodel/predictors/kernel.hpp"

/// Kernel descriptors: the work (FLOP, bytes, shape) of one kernel from the parameters that people
/// name it by. Op rules, tables of measurements and bulk queries share them, one file per family in
/// `predictors/src/work/`. Bytes count each tensor once; reuse in caches is the models' business.
namespace perfmodel {

/// Half a byte in `DType::kFloat4`, whose elements are pairs.
double bytes_per_number(DType dtype);

/// Bytes of numbers [rows, cols] of 8 or 4 bits and their scales.
double quantized_bytes(double rows, double cols, DType dtype, Scaling scaling);

/// 2 b m n k FLOP; A, B (and the bias) are read, C is written. Inputs of 8 and 4 bits
/// come with scales and give a two-byte output.
KernelWork gemm_work(const GemmShape& shape, DType dtype, bool matrix_units);

/// 2 m n k FLOP; operands that are stored are read and the result is written once; of the array as
/// much as is touched: min(k n, elements).
KernelWork hashed_product_work(const HashedProductShape& shape, DType dtype, bool matrix_units);

/// One pass over bf16 numbers [rows, cols] that writes them in `dtype`, of 8 or 4 bits, with their
/// scales.
KernelWork quantize_work(std::int64_t rows, std::int64_t cols, DType dtype, Scaling scaling);

/// 2 n k p q (c / groups) r s FLOP in every pass; the two operands are read, the third written.
KernelWork convolution_work(const ConvolutionShape& shape, DType dtype, bool matrix_units);

/// Output sizes p, q of a convolution with h x w inputs: floor((h + 2 pad - r) / stride) + 1.
std::int64_t convolution_output(std::int64_t size, std::int64_t filter, std::int64_t pad,
                                std::int64_t stride);

KernelWork embedding_forward_work(const EmbeddingShape& shape);
KernelWork embedding_backward_work(const EmbeddingShape& shape);

/// `elements` results from `inputs` tensors of the same size; `flop` per element (1 for add and
/// its like, 20 for exp, tanh, erf).
KernelWork elementwise_work(double elements, double inputs, double flop_per_element, DType dtype);

/// Whether it converts each element of one tensor, of type `dtype`, to another type.
bool is_cast(const KernelWork& work);
/// The same cast as tables count it, which do not say what it writes: as if in the type it reads.
KernelWork cast_of_tables(const KernelWork& cast);

/// Sums (or maxima) of `rows` rows of `cols` elements; `is_strided`: over the outer axis of a
/// tensor [cols, rows].
KernelWork reduction_work(std::int64_t rows, std::int64_t cols, DType dtype,
                          bool is_strided = false);

enum class RowPass : std::uint8_t { kForward, kBackward };
KernelWork softmax_work(std::int64_t rows, std::int64_t cols, RowPass pass, DType dtype);
/// Backward: the kernel of the input's gradient; the parameters' gradients are one of their own.
KernelWork layer_norm_work(std::int64_t rows, std::int64_t cols, RowPass pass, DType dtype);
/// `channels` statistics over `per_channel` elements each; training reads x twice.
KernelWork batch_norm_work(std::int64_t channels, std::int64_t per_channel, RowPass pass,
                           DType dtype);

/// Forward writes a byte mask next to the output; backward reads gradient and mask.
KernelWork dropout_work(double elements, RowPass pass, DType dtype);

/// Copy of [batch, rows, cols] with the last two axes swapped.
KernelWork transpose_work(std::int64_t batch, std::int64_t rows, std::int64_t cols, DType dtype);

KernelWork concat_work(double elements, DType dtype);

/// `rows` rows of `cols` elements by index (8-byte indices) of a table of `table_rows` (0: not
/// known); scatter reads and writes the rows.
KernelWork gather_work(std::int64_t rows, std::int64_t cols, DType dtype,
                       std::int64_t table_rows = 0);
KernelWork scatter_add_work(std::int64_t rows, std::int64_t cols, DType dtype,
                            std::int64_t table_rows = 0);

/// DLRM: the lower triangle of `batch` square matrices of `features` rows, packed (and back).
KernelWork tril_interaction_work(std::int64_t batch, std::int64_t features, bool with_diagonal,
                                 RowPass pass, DType dtype);

KernelWork memcpy_work(double bytes, CopyShape shape);
/// Runs of `run_bytes` with as many left out between, gathered into one block of `bytes`.
KernelWork strided_copy_work(double bytes, std::int64_t run_bytes);
KernelWork memset_work(double bytes);

/// Forward 4 b h sq sk d FLOP, backward 10 (flash, which computes the scores again) or 8 (math).
/// Flash keeps the scores on chip and skips what a causal mask hides, half the FLOP; math computes
/// all scores and moves them through memory between its kernels.
KernelWork attention_work(const AttentionShape& shape, DType dtype, bool matrix_units);

/// 2 rows n k FLOP; A, C and the touched ones of the matrices are moved once.
KernelWork grouped_gemm_work(const GroupedGemmShape& shape, DType dtype, bool matrix_units);

/// 6 tokens topk hidden inter FLOP; the weights of touched experts, the tokens and their results
/// are moved once.
KernelWork experts_work(const ExpertsShape& shape, DType dtype, bool matrix_units);

/// Tokens that the gated delta rule takes at a time (flash-linear-attention's kernels).
inline constexpr double kLinearAttentionChunk = 64;

/// Convolution: 2 taps FLOP per element of q, k and v, which are read and written. Rule: see
/// `lower/work/linear_attention.cpp`.
KernelWork linear_attention_work(const LinearAttentionShape& shape, DType dtype, bool matrix_units);

/// Gates of a cell, g: plain 1, LSTM 4, GRU 3.
double gates_of(RecurrentShape::Cell cell);

/// 2 g H H B T FLOP forward, twice that for the whole backward
/// pass, once for each of its halves.
KernelWork recurrent_work(const RecurrentShape& shape, DType dtype);

/// Pointwise part of one LSTM or GRU step: [batch, hidden].
KernelWork recurrent_cell_work(RecurrentShape::Cell cell, std::int64_t batch, std::int64_t hidden,
                               RowPass pass, DType dtype);

enum class OptimizerKind : std::uint8_t { kSgd, kMomentum, kAdagrad, kRowWiseAdagrad, kAdam };
/// One step over `parameters` elements in one multi-tensor kernel.
KernelWork optimizer_work(double parameters, OptimizerKind kind, DType dtype);

}  // namespace perfmodel
