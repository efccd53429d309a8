#include "price/kernel_work.hpp"

#include <gtest/gtest.h>

/// Work of single kernels; each figure can be redone by hand from the shape next to it.
namespace perfmodel {
namespace kernel_work_test {

constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16;

void expect_work(const KernelWork& work, KernelFamily family, double flop, double read,
                 double written) {
  EXPECT_EQ(work.family, family);
  EXPECT_DOUBLE_EQ(work.flop.value, flop);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, read);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, written);
}

TEST(KernelWork, GemmReadsBothOperandsOnce) {
  // two products of depth 6: A 2 (4 x 6), B 2 (6 x 5), C 2 (4 x 5)
  const KernelWork work =
      gemm_work({.batch = 2, .m = 4, .n = 5, .k = 6, .b_transposed = true}, kF32, false);
  expect_work(work, KernelFamily::kGemm, 2.0 * 2 * 4 * 5 * 6, 2 * (24 + 30) * 4, 2 * 20 * 4);
  EXPECT_FALSE(work.matrix_units);
  EXPECT_TRUE(std::get<GemmShape>(work.shape).b_transposed);
  EXPECT_TRUE(gemm_work({.m = 1, .n = 1, .k = 1}, kF16, true).matrix_units);
}

TEST(KernelWork, GemmBiasIsOneMoreVector) {
  expect_work(gemm_work({.m = 4, .n = 5, .k = 6, .has_bias = true}, kF16, true),
              KernelFamily::kGemm, 240, (24 + 30 + 5) * 2, 20 * 2);
}

TEST(KernelWork, Fp8GemmWritesTwoBytes) {
  expect_work(gemm_work({.m = 4, .n = 5, .k = 6, .has_bias = true}, DType::kFloat8, true),
              KernelFamily::kGemm, 240, 24 + 30 + 5 * 2, 20 * 2);
}

TEST(KernelWork, GemmSizesBeyond64BitsDoNotOverflow) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 22;
  EXPECT_DOUBLE_EQ(gemm_work({.m = kHuge, .n = kHuge, .k = kHuge}, kF32, false).flop.value,
                   2 * 4194304.0 * 4194304.0 * 4194304.0);
}

TEST(KernelWork, ConvolutionPassWritesTheThirdOperand) {
  // n 2, c 8, 10 x 12, k 6, 3 x 5, 8 x 8 results, 2 groups: 4 channels per filter
  ConvolutionShape shape{.pass = ConvolutionShape::Pass::kForward,
                         .n = 2,
                         .c = 8,
                         .h = 10,
                         .w = 12,
                         .k = 6,
                         .r = 3,
                         .s = 5,
                         .p = 8,
                         .q = 8,
                         .groups = 2};
  const double flop = 2.0 * 2 * 6 * 8 * 8 * 4 * 3 * 5;
  const double input = 2 * 8 * 10 * 12 * 4, filter = 6 * 4 * 3 * 5 * 4, output = 2 * 6 * 8 * 8 * 4;
  expect_work(convolution_work(shape, kF32, false), KernelFamily::kConvolution, flop,
              input + filter, output);
  shape.pass = ConvolutionShape::Pass::kInputGradient;
  expect_work(convolution_work(shape, kF32, false), KernelFamily::kConvolution, flop,
              output + filter, input);
  shape.pass = ConvolutionShape::Pass::kWeightGradient;
  expect_work(convolution_work(shape, kF32, false), KernelFamily::kConvolution, flop,
              input + output, filter);
}

TEST(KernelWork, ConvolutionOutputRoundsDown) {
  EXPECT_EQ(convolution_output(224, 7, 3, 2), 112);  // (224 + 6 - 7) / 2 + 1 = 111.5 + 1
  EXPECT_EQ(convolution_output(56, 3, 1, 1), 56);
  EXPECT_EQ(convolution_output(5, 5, 0, 1), 1);
  EXPECT_EQ(convolution_output(4, 5, 0, 1), 0);  // the filter does not fit
}

TEST(KernelWork, EmbeddingForwardReadsEveryLookup) {
  // 10 x 3 bags of 4 lookups: 120 rows of 16 fp16, 8-byte indices, 31 offsets, fp32 results
  const EmbeddingShape shape{.batch = 10,
                             .num_tables = 3,
                             .num_rows = 1000,
                             .dim = 16,
                             .pooling_factor = 4,
                             .weight_bytes = 2};
  const KernelWork work = embedding_forward_work(shape);
  expect_work(work, KernelFamily::kEmbeddingForward, 120 * 16, 120 * (32 + 8) + 31 * 8,
              30 * 16 * 4);
  EXPECT_EQ(work.dtype, kF16);
}

TEST(KernelWork, EmbeddingBackwardTouchesAtMostTheTable) {
  // Gradients 30 x 16 x 4, 120 indices, and rows of 16 x 4 with 64 bytes of state, half read
  EmbeddingShape shape{.batch = 10,
                       .num_tables = 3,
                       .num_rows = 1000,
                       .dim = 16,
                       .pooling_factor = 4,
                       .optimizer_bytes_per_row = 64};
  expect_work(embedding_backward_work(shape), KernelFamily::kEmbeddingBackward, 120 * 16,
              30 * 64 + 120 * 8 + 120 * (64 + 32), 120 * (64 + 32));
  shape.num_rows = 20;  // for 40 lookups per table
  expect_work(embedding_backward_work(shape), KernelFamily::kEmbeddingBackward, 120 * 16,
              30 * 64 + 120 * 8 + 60 * (64 + 32), 60 * (64 + 32));
}

TEST(KernelWork, ElementwiseReadsItsInputs) {
  expect_work(elementwise_work(100, 2, 1, kF32), KernelFamily::kElementwise, 100, 800, 400);
  expect_work(elementwise_work(100, 1, 20, kF16), KernelFamily::kElementwise, 2000, 200, 200);
}

TEST(KernelWork, ReductionWritesOneResultPerRow) {
  const KernelWork work = reduction_work(10, 50, kF32);
  expect_work(work, KernelFamily::kReduction, 500, 2000, 40);
  EXPECT_EQ(std::get<RowShape>(work.shape).cols, 50);
}

TEST(KernelWork, SoftmaxCountsFifteenAndFour) {
  expect_work(softmax_work(10, 50, RowPass::kForward, kF32), KernelFamily::kSoftmax, 7500, 2000,
              2000);
  expect_work(softmax_work(10, 50, RowPass::kBackward, kF32), KernelFamily::kSoftmax, 2000, 4000,
              2000);
}

TEST(KernelWork, NormsReadOnceTwiceOrFourTimes) {
  expect_work(layer_norm_work(10, 50, RowPass::kForward, kF32), KernelFamily::kNorm, 2000, 2000,
              2000);
  expect_work(layer_norm_work(10, 50, RowPass::kBackward, kF32), KernelFamily::kNorm, 4000, 4000,
              2000);
  expect_work(batch_norm_work(10, 50, RowPass::kForward, kF32), KernelFamily::kNorm, 4000, 4000,
              2000);
  expect_work(batch_norm_work(10, 50, RowPass::kBackward, kF32), KernelFamily::kNorm, 8000, 8000,
              2000);
  EXPECT_EQ(std::get<RowShape>(batch_norm_work(10, 50, RowPass::kForward, kF32).shape).rows, 10);
}

TEST(KernelWork, DropoutMovesAByteOfMask) {
  expect_work(dropout_work(100, RowPass::kForward, kF16), KernelFamily::kDropout, 2000, 200, 300);
  expect_work(dropout_work(100, RowPass::kBackward, kF16), KernelFamily::kDropout, 200, 300, 200);
}

TEST(KernelWork, MovesReadAndWriteOnce) {
  expect_work(transpose_work(2, 3, 5, kF32), KernelFamily::kTranspose, 0, 120, 120);
  expect_work(concat_work(100, kF16), KernelFamily::kConcat, 0, 200, 200);
  expect_work(memcpy_work(1000, {.kind = CopyKind::kHostToDevice}), KernelFamily::kCopy, 0, 1000,
              1000);
  expect_work(memset_work(1000), KernelFamily::kSet, 0, 0, 1000);
}

TEST(KernelWork, ScatterReadsItsTargetsToo) {
  // 10 rows of 8 fp32 = 320 B, 80 B of indices
  expect_work(gather_work(10, 8, kF32), KernelFamily::kIndex, 0, 320 + 80, 320);
  expect_work(scatter_add_work(10, 8, kF32), KernelFamily::kIndex, 80, 640 + 80, 320);
}

TEST(KernelWork, InteractionMovesTheTriangle) {
  // 27 features: 351 pairs, 378 with the diagonal, 729 elements in all
  expect_work(tril_interaction_work(10, 27, false, RowPass::kForward, kF32),
              KernelFamily::kInteraction, 0, 10 * 351 * 4, 10 * 351 * 4);
  expect_work(tril_interaction_work(10, 27, true, RowPass::kForward, kF32),
              KernelFamily::kInteraction, 0, 10 * 378 * 4, 10 * 378 * 4);
  expect_work(tril_interaction_work(10, 27, false, RowPass::kBackward, kF32),
              KernelFamily::kInteraction, 0, 10 * 351 * 4, 10 * 729 * 4);
}

/// b 2, h 3, sq 4, sk 5, d 8 in fp16: q 192 elements = 384 B, k and v 240 = 480 B each, 120 scores
/// = 240 B, 24 rows = 96 B of log-sums.
AttentionShape attention(AttentionShape::Method method, AttentionShape::Pass pass, bool causal) {
  return {.method = method,
          .pass = pass,
          .batch = 2,
          .heads = 3,
          .seq_q = 4,
          .seq_k = 5,
          .head_dim = 8,
          .causal = causal};
}

TEST(KernelWork, FlashAttentionKeepsScoresOnChip) {
  using A = AttentionShape;
  const auto work = [](A::Pass pass, bool causal) {
    return attention_work(attention(A::Method::kFlash, pass, causal), kF16, true);
  };
  expect_work(work(A::Pass::kForward, false), KernelFamily::kAttention, 4 * 120 * 8, 384 + 2 * 480,
              384 + 96);
  expect_work(work(A::Pass::kBackward, false), KernelFamily::kAttention, 10 * 120 * 8,
              3 * 384 + 2 * 480 + 96, 384 + 2 * 480);
  EXPECT_DOUBLE_EQ(work(A::Pass::kForward, true).flop.value, 2 * 120 * 8);
  EXPECT_DOUBLE_EQ(work(A::Pass::kBackward, true).flop.value, 5 * 120 * 8);
}

TEST(KernelWork, MathAttentionMovesScores) {
  using A = AttentionShape;
  const auto work = [](A::Pass pass, bool causal) {
    return attention_work(attention(A::Method::kMath, pass, causal), kF16, true);
  };
  expect_work(work(A::Pass::kForward, false), KernelFamily::kAttention, 4 * 120 * 8,
              2 * 384 + 3 * 480 + 2 * 240, 2 * 384 + 480 + 2 * 240);
  expect_work(work(A::Pass::kBackward, false), KernelFamily::kAttention, 8 * 120 * 8,
              3 * 384 + 2 * 480 + 5 * 240, 384 + 2 * 480 + 2 * 240);
  const KernelWork masked = work(A::Pass::kForward, true);  // no product is saved
  expect_work(masked, KernelFamily::kAttention, 4 * 120 * 8, 2 * 384 + 3 * 480 + 4 * 240,
              2 * 384 + 480 + 3 * 240);
}

TEST(KernelWork, RecurrentLayerReadsItsWeightsOnce) {
  // H 8, B 2, T 5: x 80 elements = 320 B; LSTM weights 256 = 1024 B, gates 1280 B
  using R = RecurrentShape;
  const auto work = [](R::Cell cell, R::Pass pass) {
    return recurrent_work({.cell = cell, .pass = pass, .hidden = 8, .batch = 2, .timesteps = 5},
                          kF32);
  };
  const double flop = 2.0 * 4 * 8 * 8 * 2 * 5;
  expect_work(work(R::Cell::kLstm, R::Pass::kForward), KernelFamily::kRecurrent, flop, 1024 + 320,
              320 + 1280);
  expect_work(work(R::Cell::kLstm, R::Pass::kBackwardData), KernelFamily::kRecurrent, flop,
              1024 + 320 + 1280, 320 + 1280);
  expect_work(work(R::Cell::kLstm, R::Pass::kBackwardWeights), KernelFamily::kRecurrent, flop,
              320 + 1280, 1024);
  expect_work(work(R::Cell::kLstm, R::Pass::kBackward), KernelFamily::kRecurrent, 2 * flop,
              1024 + 2 * (320 + 1280), 320 + 1280 + 1024);
  EXPECT_DOUBLE_EQ(work(R::Cell::kGru, R::Pass::kForward).flop.value, flop * 3 / 4);
  EXPECT_DOUBLE_EQ(work(R::Cell::kPlain, R::Pass::kForward).flop.value, flop / 4);
}

TEST(KernelWork, RecurrentCellIsOnePassOverItsVectors) {
  // n = 2 x 8 = 16 elements = 64 B
  using Cell = RecurrentShape::Cell;
  const auto expect_cell = [](Cell cell, RowPass pass, double flop, double read, double written) {
    expect_work(recurrent_cell_work(cell, 2, 8, pass, kF32), KernelFamily::kElementwise, flop * 16,
                read * 64, written * 64);
  };
  expect_cell(Cell::kLstm, RowPass::kForward, 80, 9, 6);
  expect_cell(Cell::kLstm, RowPass::kBackward, 80, 8, 5);
  expect_cell(Cell::kGru, RowPass::kForward, 100, 7, 6);
  expect_cell(Cell::kGru, RowPass::kBackward, 60, 6, 7);
  expect_cell(Cell::kPlain, RowPass::kForward, 20, 2, 1);
  expect_cell(Cell::kPlain, RowPass::kBackward, 20, 2, 1);
}

TEST(KernelWork, OptimizersReadParametersGradientsAndState) {
  const auto expect_step = [](OptimizerKind kind, double flop, double reads, double writes) {
    expect_work(optimizer_work(100, kind, kF32), KernelFamily::kOptimizer, flop * 100, reads * 400,
                writes * 400);
  };
  expect_step(OptimizerKind::kSgd, 4, 2, 1);
  expect_step(OptimizerKind::kMomentum, 4, 3, 2);
  expect_step(OptimizerKind::kAdagrad, 10, 3, 2);
  expect_step(OptimizerKind::kRowWiseAdagrad, 10, 2, 1);
  expect_step(OptimizerKind::kAdam, 15, 4, 3);
}

}  // namespace kernel_work_test
}  // namespace perfmodel
