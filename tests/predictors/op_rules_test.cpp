#include "perfmodel/predictors/detail/op_rules.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "graph_fixture.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {
namespace op_rules_test {

using test_support::GraphFixture;

class OpRules : public ::testing::Test {
 protected:
  GraphFixture f;
  Gpu gpu = test_support::round_gpu();

  /// The single kernel of a node.
  KernelWork one(int node, int forward = -1) {
    const auto lowered = f.lower(node, gpu, forward);
    EXPECT_TRUE(lowered.known);
    EXPECT_TRUE(lowered.ok);
    EXPECT_EQ(lowered.kernels.size(), 1u);
    return lowered.kernels.empty() ? KernelWork{} : lowered.kernels[0];
  }
  std::size_t count(int node) {
    const auto lowered = f.lower(node, gpu);
    EXPECT_TRUE(lowered.known && lowered.ok);
    return lowered.kernels.size();
  }
};

TEST_F(OpRules, AddmmIsOneGemm) {
  // C[32, 64] = A[32, 128] B[128, 64] + bias[64]
  const int node = f.node("aten::addmm", {f.tensor({64}), f.tensor({32, 128}), f.tensor({128, 64})},
                          {f.tensor({32, 64})});
  const KernelWork work = one(node);
  EXPECT_EQ(work.family, KernelFamily::kGemm);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 32 * 64 * 128);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4.0 * (32 * 128 + 128 * 64 + 64));
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 4.0 * 32 * 64);
  EXPECT_FALSE(work.matrix_units);  // TF32 is off by default
  const auto& shape = std::get<GemmShape>(work.shape);
  EXPECT_EQ(shape.m, 32);
  EXPECT_EQ(shape.n, 64);
  EXPECT_EQ(shape.k, 128);
}

TEST_F(OpRules, BmmKeepsItsBatchAndHalfUsesMatrixUnits) {
  const int node = f.node("aten::bmm", {f.tensor({16, 27, 8}, DType::kFloat16),
                                        f.tensor({16, 8, 27}, DType::kFloat16)});
  const KernelWork work = one(node);
  EXPECT_TRUE(work.matrix_units);
  EXPECT_EQ(std::get<GemmShape>(work.shape).batch, 16);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 16 * 27 * 27 * 8);
}

TEST_F(OpRules, AmdRunsFp32GemmsOnMatrixCores) {
  gpu.vendor = "amd";
  gpu.peak_tflop_per_s.fp32_matrix = 40;
  EXPECT_TRUE(one(f.node("aten::mm", {f.tensor({4, 4}), f.tensor({4, 4})})).matrix_units);
}

TEST_F(OpRules, MismatchedGemmIsRefused) {
  const int node = f.node("aten::mm", {f.tensor({4, 5}), f.tensor({6, 4})});
  EXPECT_FALSE(f.lower(node, gpu).ok);
}

TEST_F(OpRules, ProductsWithoutShapesAreRefused) {
  EXPECT_FALSE(f.lower(f.node("aten::mm", {f.tensor({}), f.tensor({})}), gpu).ok);
  EXPECT_FALSE(f.lower(f.node("aten::linear", {f.tensor({}), f.tensor({})}), gpu).ok);
}

TEST_F(OpRules, WhatIsPricedByThePeakOfFloatsIsRefusedForOtherTypes) {
  for (const DType dtype : {DType::kUnknown, DType::kBool, DType::kInt64, DType::kComplex64}) {
    SCOPED_TRACE(to_string(dtype));
    const Argument matrix = f.tensor({8, 8}, dtype), image = f.tensor({2, 4, 8, 8}, dtype),
                   filter = f.tensor({4, 4, 1, 1}, dtype);
    for (const int node : {f.node("aten::mm", {matrix, matrix}, {matrix}),
                           f.node("aten::linear", {matrix, matrix}, {matrix}),
                           f.node("aten::cudnn_convolution", {image, filter}, {image}),
                           f.node("aten::_softmax", {matrix, f.integer(-1)}, {matrix}),
                           f.node("aten::native_layer_norm", {matrix}, {matrix})}) {
      const auto lowered = f.lower(node, gpu);
      EXPECT_TRUE(lowered.known);
      EXPECT_FALSE(lowered.ok);
      EXPECT_TRUE(lowered.kernels.empty());
    }
  }
  const Argument bytes = f.tensor({8, 8}, DType::kInt8);
  EXPECT_EQ(one(f.node("aten::_int_mm", {bytes, bytes})).dtype, DType::kInt8);
}

TEST_F(OpRules, AnOddTypeBesideFloatsIsRefusedToo) {
  const Argument floats = f.tensor({8, 8});
  for (const DType dtype : {DType::kUnknown, DType::kComplex64}) {
    const Argument odd = f.tensor({8, 8}, dtype);
    EXPECT_FALSE(f.lower(f.node("aten::mm", {floats, odd}, {floats}), gpu).ok);
    EXPECT_FALSE(f.lower(f.node("aten::mul", {floats, odd}, {floats}), gpu).ok);
  }
}

TEST_F(OpRules, MasksCountAByteAnElement) {
  const Argument x = f.tensor({1000}), mask = f.tensor({1000}, DType::kBool);
  const KernelWork fill = one(f.node("aten::masked_fill", {x, mask, f.real(0)}, {x}));
  EXPECT_EQ(fill.dtype, DType::kFloat32);
  const KernelWork where = one(f.node("aten::where", {mask, x, x}, {f.tensor({1000})}));
  EXPECT_DOUBLE_EQ(where.bytes_read.value, 1000 + 2 * 4000);
  const KernelWork equal = one(f.node("aten::eq", {x, f.integer(0)}, {mask}));
  EXPECT_DOUBLE_EQ(equal.bytes_written.value, 1000);
  EXPECT_EQ(count(f.node("aten::any", {mask}, {f.tensor({}, DType::kBool)})), 1u);
}

TEST_F(OpRules, ComplexElementsAreMovedButNotComputedWith) {
  const Argument a = f.tensor({1000}, DType::kComplex64), b = f.tensor({1000}, DType::kComplex64);
  EXPECT_DOUBLE_EQ(one(f.node("aten::copy_", {a, b}, {a})).bytes_read.value, 8000);
  EXPECT_FALSE(f.lower(f.node("aten::add", {a, b}, {a}), gpu).ok);
  EXPECT_FALSE(f.lower(f.node("aten::sum", {a}, {f.tensor({}, DType::kComplex64)}), gpu).ok);
  EXPECT_FALSE(f.lower(f.node("aten::abs", {a}, {f.tensor({1000})}), gpu).ok);
}

// Recordings cut long lists off, and their types with them.
TEST_F(OpRules, TypesThatAreCutOffInListsAreNotMissed) {
  const Argument known = f.tensor({1000}), cut = f.tensor({1000}, DType::kUnknown);
  const int node = f.node("aten::_foreach_add_", {f.list({known, cut}), f.integer(1)});
  EXPECT_TRUE(f.lower(node, gpu).ok);
}

TEST_F(OpRules, ReluIsItsChildWhereThereIsOne) {
  const int alone = f.node("aten::relu", {f.tensor({100})}, {f.tensor({100})});
  EXPECT_EQ(count(alone), 1u);
  const int wrapper = f.node("aten::relu", {f.tensor({100})}, {f.tensor({100})});
  f.adopt(wrapper, {f.node("aten::clamp_min", {f.tensor({100})}, {f.tensor({100})})});
  EXPECT_EQ(count(wrapper), 0u);
}

TEST_F(OpRules, ASparseGradientTouchesItsRowsOfTheTable) {
  const auto rows = f.tensor({2048, 64}), table = f.tensor({1000000, 64});
  const int index_add =
      f.node("aten::index_add_", {table, f.integer(0), f.tensor({2048}, DType::kInt64), rows});
  const int add = f.node("aten::add", {table, table, f.real(-0.1), table});
  const int add_in_place = f.node("aten::add_", {table, table, f.real(-0.1)}, {table});
  f.adopt(add, {index_add});
  f.adopt(add_in_place, {add});
  EXPECT_EQ(count(add_in_place), 0u);
  EXPECT_EQ(count(add), 0u);
  EXPECT_LT(one(index_add).bytes().value, 4 * 4.0 * 2048 * 64);
}

TEST_F(OpRules, RedispatchUnderTheSameNameCountsOnce) {
  const int outer = f.node("aten::sum", {f.tensor({10, 10})}, {f.tensor({})});
  const int inner = f.node("aten::sum", {f.tensor({10, 10})}, {f.tensor({})});
  f.adopt(outer, {inner});
  EXPECT_EQ(count(outer), 0u);
  EXPECT_EQ(count(inner), 1u);
}

TEST_F(OpRules, ElementwiseReadsInputsAndWritesOutputs) {
  const KernelWork add = one(
      f.node("aten::add", {f.tensor({1000}), f.tensor({1000}), f.integer(1)}, {f.tensor({1000})}));
  EXPECT_DOUBLE_EQ(add.bytes_read.value, 8000);
  EXPECT_DOUBLE_EQ(add.bytes_written.value, 4000);
  const Argument self = f.tensor({1000});
  const KernelWork in_place = one(f.node("aten::mul_", {self, f.real(2)}, {self}));
  EXPECT_DOUBLE_EQ(in_place.bytes_read.value, 4000);
  EXPECT_DOUBLE_EQ(in_place.bytes_written.value, 4000);
}

TEST_F(OpRules, OutArgumentIsNotRead) {
  const Argument out = f.tensor({1000});
  const KernelWork work = one(f.node("aten::neg", {f.tensor({1000}), out}, {out}));
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4000);
}

TEST_F(OpRules, FillWritesOnlyAndZeroWithoutFillIsAMemset) {
  const Argument self = f.tensor({1000});
  const KernelWork fill = one(f.node("aten::fill_", {self, f.integer(0)}, {self}));
  EXPECT_EQ(fill.family, KernelFamily::kElementwise);
  EXPECT_DOUBLE_EQ(fill.bytes_read.value, 0);
  EXPECT_DOUBLE_EQ(fill.bytes_written.value, 4000);
  EXPECT_EQ(one(f.node("aten::zero_", {self}, {self})).family, KernelFamily::kSet);
}

TEST_F(OpRules, ViewsAndWrappersLaunchNothing) {
  for (const char* name :
       {"aten::view", "aten::empty", "detach", "aten::to", "nccl:all_reduce", "AddBackward0",
        "torch::autograd::AccumulateGrad", "aten::result_type"}) {
    EXPECT_EQ(count(f.node(name, {f.tensor({8})}, {f.tensor({8})})), 0u) << name;
  }
}

TEST_F(OpRules, CustomAutogradAndUnknownOpsStayUnmodelled) {
  EXPECT_FALSE(f.lower(f.node("MyFunctionBackward", {f.tensor({8})}), gpu).known);
  EXPECT_FALSE(f.lower(f.node("mylib::op", {f.tensor({8})}), gpu).known);
}

TEST_F(OpRules, CopyGoesByDevices) {
  const auto kind = [&](const Argument& to, const Argument& from, bool non_blocking) {
    const KernelWork work =
        one(f.node("aten::copy_", {to, from, GraphFixture::boolean(non_blocking)}));
    EXPECT_EQ(work.family, KernelFamily::kCopy);
    return std::get<CopyShape>(work.shape);
  };
  EXPECT_EQ(kind(f.tensor({8}), f.cpu_tensor({8}), false).kind, CopyKind::kHostToDevice);
  EXPECT_TRUE(kind(f.tensor({8}), f.cpu_tensor({8}), false).pageable);
  EXPECT_FALSE(kind(f.tensor({8}), f.cpu_tensor({8}), true).pageable);
  EXPECT_EQ(kind(f.cpu_tensor({8}), f.tensor({8}), false).kind, CopyKind::kDeviceToHost);
  EXPECT_EQ(kind(f.tensor({8}), f.tensor({8}), false).kind, CopyKind::kDeviceToDevice);
  const Argument peer = f.tensor({8}, DType::kFloat32, Device::Kind::kGpu, 1);
  EXPECT_EQ(kind(f.tensor({8}), peer, false).kind, CopyKind::kPeer);
  const KernelWork cast =
      one(f.node("aten::copy_", {f.tensor({8}, DType::kFloat16), f.tensor({8})}));
  EXPECT_EQ(cast.family, KernelFamily::kElementwise);
  EXPECT_DOUBLE_EQ(cast.bytes().value, 8 * (4 + 2));
  EXPECT_EQ(cast.dtype, DType::kFloat32);  // the type that it reads, as in rows of tables
  EXPECT_EQ(count(f.node("aten::copy_", {f.cpu_tensor({8}), f.cpu_tensor({8})})), 0u);
}

// How an update by a sparse gradient ends: `copy_` finds its own tensor and returns.
TEST_F(OpRules, CopyOntoItselfIsNothing) {
  const Argument table = f.tensor({10000000, 128});
  EXPECT_EQ(count(f.node("aten::copy_", {table, table, GraphFixture::boolean(false)}, {table})),
            0u);
  EXPECT_EQ(count(f.node("aten::copy_", {table, f.tensor({10000000, 128})}, {table})), 1u);
}

TEST_F(OpRules, ScalarReadIsADeviceToHostCopy) {
  const KernelWork work = one(f.node("aten::_local_scalar_dense", {f.tensor({1})}));
  EXPECT_EQ(std::get<CopyShape>(work.shape).kind, CopyKind::kDeviceToHost);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4);
}

TEST_F(OpRules, CudnnConvolutionTakesGeometryFromItsArguments) {
  // 7x7 stride 2 pad 3: [2, 3, 224, 224] -> [2, 64, 112, 112]
  const int node = f.node(
      "aten::cudnn_convolution",
      {f.tensor({2, 3, 224, 224}), f.tensor({64, 3, 7, 7}), f.integers({3, 3}), f.integers({2, 2}),
       f.integers({1, 1}), f.integer(1), f.boolean(false), f.boolean(false), f.boolean(false)},
      {f.tensor({2, 64, 112, 112})},
      "aten::cudnn_convolution(Tensor self, Tensor weight, int[] padding, int[] stride, int[] "
      "dilation, int groups, bool benchmark, bool deterministic, bool allow_tf32) -> Tensor");
  const KernelWork work = one(node);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 2 * 64 * 112 * 112 * 3 * 7 * 7);
  const auto& shape = std::get<ConvolutionShape>(work.shape);
  EXPECT_EQ(shape.stride, 2);
  EXPECT_EQ(shape.p, 112);
  EXPECT_FALSE(work.matrix_units);  // allow_tf32 is false in the arguments
}

TEST_F(OpRules, ConvolutionTf32FollowsTheFlag) {
  const int node = f.node(
      "aten::cudnn_convolution",
      {f.tensor({1, 8, 8, 8}), f.tensor({8, 8, 1, 1}), f.integers({0, 0}), f.integers({1, 1}),
       f.integers({1, 1}), f.integer(1), f.boolean(false), f.boolean(false), f.boolean(true)},
      {f.tensor({1, 8, 8, 8})},
      "aten::cudnn_convolution(Tensor self, Tensor weight, int[] padding, int[] "
      "stride, int[] dilation, int groups, bool benchmark, bool deterministic, "
      "bool allow_tf32) -> Tensor");
  EXPECT_TRUE(one(node).matrix_units);
}

TEST_F(OpRules, DepthwiseConvolutionDividesByGroups) {
  const int node = f.node("aten::cudnn_convolution",
                          {f.tensor({1, 32, 8, 8}), f.tensor({32, 1, 3, 3}), f.integers({1, 1}),
                           f.integers({1, 1}), f.integers({1, 1}), f.integer(32)},
                          {f.tensor({1, 32, 8, 8})});
  EXPECT_DOUBLE_EQ(one(node).flop.value, 2.0 * 32 * 8 * 8 * 9);
}

TEST_F(OpRules, ConvolutionBackwardFollowsTheMask) {
  const auto backward = [&](bool input, bool weight, bool bias) {
    return f.lower(f.node("aten::convolution_backward",
                          {f.tensor({1, 16, 8, 8}), f.tensor({1, 4, 8, 8}), f.tensor({16, 4, 3, 3}),
                           f.integers({16}), f.integers({1, 1}), f.integers({1, 1}),
                           f.integers({1, 1}), f.boolean(false), f.integers({0, 0}), f.integer(1),
                           f.list({f.boolean(input), f.boolean(weight), f.boolean(bias)})}),
                   gpu);
  };
  const auto all = backward(true, true, true);
  ASSERT_TRUE(all.ok);
  ASSERT_EQ(all.kernels.size(), 3u);
  EXPECT_EQ(std::get<ConvolutionShape>(all.kernels[0].shape).pass,
            ConvolutionShape::Pass::kInputGradient);
  EXPECT_EQ(std::get<ConvolutionShape>(all.kernels[1].shape).pass,
            ConvolutionShape::Pass::kWeightGradient);
  EXPECT_EQ(all.kernels[2].family, KernelFamily::kReduction);
  const double flop = 2.0 * 16 * 8 * 8 * 4 * 9;
  EXPECT_DOUBLE_EQ(all.kernels[0].flop.value, flop);
  EXPECT_DOUBLE_EQ(all.kernels[1].flop.value, flop);
  EXPECT_EQ(backward(false, true, false).kernels.size(), 1u);
}

TEST_F(OpRules, EmbeddingBag) {
  // 4 bags, 12 lookups, rows of 16 floats; offsets without the last.
  const int node = f.node(
      "aten::_embedding_bag",
      {f.tensor({1000, 16}), f.tensor({12}, DType::kInt64), f.tensor({4}, DType::kInt64),
       f.boolean(false), f.integer(0), f.boolean(false), f.none(), f.boolean(false), f.integer(-1)},
      {f.tensor({4, 16})});
  const KernelWork work = one(node);
  const auto& shape = std::get<EmbeddingShape>(work.shape);
  EXPECT_EQ(shape.batch, 4);
  EXPECT_DOUBLE_EQ(shape.pooling_factor, 3);
  EXPECT_DOUBLE_EQ(shape.num_rows, 1000);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 12.0 * 16 * 4 + 12 * 8 + 4 * 8);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 4.0 * 16 * 4);
}

// Tempo's GELU makes a mask of one byte; its backward pass reads gradient, output and mask.
TEST_F(OpRules, InPlaceGeluMovesAMask) {
  const auto x = [&] { return f.tensor({10, 100}); };
  const auto mask = [&] { return f.tensor({10, 100}, DType::kBool); };
  const KernelWork forward = one(f.node("tempo::gelu", {x()}, {x(), mask()}));
  EXPECT_EQ(forward.family, KernelFamily::kElementwise);
  EXPECT_DOUBLE_EQ(forward.bytes_read.value, 4000);
  EXPECT_DOUBLE_EQ(forward.bytes_written.value, 5000);
  const KernelWork backward = one(f.node("tempo::gelu_backward", {x(), x(), mask()}, {x()}));
  EXPECT_EQ(backward.dtype, DType::kFloat32);
  EXPECT_DOUBLE_EQ(backward.bytes_read.value, 9000);
  EXPECT_DOUBLE_EQ(backward.bytes_written.value, 4000);
  const KernelWork plain = one(f.node("aten::gelu_backward", {x(), x()}, {x()}));
  EXPECT_DOUBLE_EQ(plain.bytes().value, 12000);
  EXPECT_LT(backward.flop.value, plain.flop.value);
}

// Gradient, parameter, two states of a byte, two scales for 256 numbers and two maps are read;
// all but the gradient are written.
TEST_F(OpRules, EightBitAdamReadsSixBytesOfStateLess) {
  const auto x = [&] { return f.tensor({1024, 16}); };
  const auto state = [&] { return f.tensor({1024, 16}, DType::kUInt8); };
  const auto scale = [&] { return f.tensor({64}); };
  const auto map = [&] { return f.tensor({256}); };
  const Argument one_number = f.real(0.9);
  const KernelWork narrow =
      one(f.node("bitsandbytes::optimizer_update_8bit_blockwise",
                 {f.none(), x(), x(), state(), state(), one_number, one_number, one_number,
                  one_number, one_number, f.integer(4), one_number, map(), map(), scale(), scale()},
                 {}));
  const double n = 1024 * 16;
  EXPECT_EQ(narrow.family, KernelFamily::kOptimizer);
  EXPECT_DOUBLE_EQ(narrow.bytes_read.value, n * (4 + 4 + 2) + 2 * 64 * 4 + 2 * 256 * 4);
  EXPECT_DOUBLE_EQ(narrow.bytes_read.value - narrow.bytes_written.value, 4 * n);
  const KernelWork wide = one(f.node("bitsandbytes::optimizer_update_32bit",
                                     {f.none(), x(), x(), x(), x(), f.none(), one_number}, {}));
  EXPECT_DOUBLE_EQ(wide.bytes_read.value, n * 16);
  EXPECT_DOUBLE_EQ(wide.bytes_written.value, n * 12);
  EXPECT_GT(narrow.flop.value, wide.flop.value);
}

TEST_F(OpRules, OffloadCopiesGoAside) {
  const auto check = [&](const char* op, const Argument& from, const Argument& to, CopyKind kind) {
    const KernelWork work = one(f.node(op, {from}, {to}));
    const auto& shape = std::get<CopyShape>(work.shape);
    EXPECT_EQ(shape.kind, kind);
    EXPECT_TRUE(shape.aside);
    EXPECT_FALSE(shape.pageable);
    EXPECT_DOUBLE_EQ(work.bytes_read.value, 4000);
  };
  check("offload::to_host", f.tensor({1000}), f.cpu_tensor({1000}), CopyKind::kDeviceToHost);
  check("offload::to_device", f.cpu_tensor({1000}), f.tensor({1000}), CopyKind::kHostToDevice);
}

/// FBGEMM's lookup in the order of its schema: T = 3 tables, B = 128, D = 16, L = 2.
int add_lookup(GraphFixture& f) {
  return f.node(
      "fbgemm::split_embedding_codegen_lookup_adagrad_function",
      {f.tensor({0}), f.tensor({48000}), f.tensor({0}), f.tensor({0}), f.tensor({3}, DType::kInt32),
       f.tensor({3}, DType::kInt64), f.tensor({4}, DType::kInt32), f.integer(48), f.integer(16),
       f.tensor({4}, DType::kInt64), f.integer(12), f.tensor({768}, DType::kInt64),
       f.tensor({385}, DType::kInt64), f.integer(0)},
      {f.tensor({128, 48})},
      "fbgemm::split_embedding_codegen_lookup_adagrad_function(Tensor placeholder_autograd_tensor, "
      "Tensor dev_weights, Tensor uvm_weights, Tensor lxu_cache_weights, Tensor "
      "weights_placements, "
      "Tensor weights_offsets, Tensor D_offsets, int total_D, int max_D, Tensor hash_size_cumsum, "
      "int "
      "total_hash_size_bits, Tensor indices, Tensor offsets, int pooling_mode) -> Tensor");
}

TEST_F(OpRules, FbgemmLookupForward) {
  const KernelWork work = one(add_lookup(f));
  EXPECT_EQ(work.family, KernelFamily::kEmbeddingForward);
  const auto& shape = std::get<EmbeddingShape>(work.shape);
  EXPECT_EQ(shape.num_tables, 3);
  EXPECT_EQ(shape.batch, 128);
  EXPECT_DOUBLE_EQ(shape.dim, 16);
  EXPECT_DOUBLE_EQ(shape.pooling_factor, 2);
  EXPECT_DOUBLE_EQ(shape.num_rows, 1000);  // 48,000 elements / 48
}

TEST_F(OpRules, FbgemmBackwardFindsItsLookup) {
  add_lookup(f);
  const int backward =
      f.node("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", {f.tensor({128, 48})});
  const auto lowered = f.lower(backward, gpu);
  ASSERT_TRUE(lowered.ok);
  ASSERT_FALSE(lowered.kernels.empty());
  const KernelWork& main = lowered.kernels.back();
  EXPECT_EQ(main.family, KernelFamily::kEmbeddingBackward);
  // adagrad: one fp32 state per element, read and written
  EXPECT_DOUBLE_EQ(std::get<EmbeddingShape>(main.shape).optimizer_bytes_per_row, 2 * 4 * 16);
  EXPECT_DOUBLE_EQ(std::get<EmbeddingShape>(main.shape).num_rows, 1000);
}

TEST_F(OpRules, FbgemmBackwardWithoutLookupIsRefused) {
  add_lookup(f);  // another shape than the gradient
  EXPECT_FALSE(f.lower(f.node("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>",
                              {f.tensor({64, 48})}),
                       gpu)
                   .ok);
}

// A record with a label in it, which launches the collective where a template knows it.
int add_collective(GraphFixture& f, const char* kind, const char* label) {
  f.graph().comm_records.push_back({.collective = kind, .group_size = 4});
  const int record = f.node("record_param_comms", {f.tensor({80})}, {f.tensor({20})});
  f.at(record).comm = static_cast<std::int32_t>(f.graph().comm_records.size()) - 1;
  const int inside = f.node(label, {f.tensor({80})});
  f.at(inside).is_label = true;
  f.adopt(record, {inside});
  return record;
}

TEST_F(OpRules, CollectivesThatNoTemplateKnowsAreLaunchedByTheirRule) {
  const int known = add_collective(f, "all_to_all", "nccl:all_to_all");
  const int unknown = add_collective(f, "_reduce_scatter_base", "nccl:_reduce_scatter_base");
  LaunchTemplates templates;
  templates.lists = {{}, {{.collective = true, .stream = 1}}};
  for (int i = 0; i < 2; ++i) {  // the record, then its label
    const Node& node = f.at(known + i);
    const TemplateKeys keys = template_keys(f.graph(), node);
    for (std::size_t level = 0; level < kTemplateLevels; ++level) {
      templates.by_key[level][keys[level]] = {.list = static_cast<std::uint32_t>(i), .count = 1};
    }
  }
  // Same name and devices: the record of the other one is found too, and launches nothing.
  ASSERT_NE(templates.find(template_keys(f.graph(), f.at(unknown))).calls, nullptr);
  Lowering lowering(f.graph(), gpu, &templates);
  const LoweredOp by_label = lowering.lower(known), by_record = lowering.lower(unknown);
  ASSERT_EQ(by_label.calls.size(), 1U);
  EXPECT_EQ(by_label.calls[0].node, known + 1);
  ASSERT_EQ(by_record.calls.size(), 1U);
  EXPECT_EQ(by_record.calls[0].node, unknown + 1);  // in the label, as PyTorch does
  ASSERT_EQ(by_record.work.size(), 1U);
  EXPECT_EQ(std::get<CollectiveShape>(by_record.work[0].shape).kind, "reduce_scatter");
}

// Tables learned from traces alone know names only: of records, most of which are waits, and of
// labels, each inside a record.
TEST_F(OpRules, ARecordAndItsLabelLaunchOnce) {
  const int record = add_collective(f, "all_to_all", "nccl:all_to_all");
  const TemplateCall launch{.collective = true, .stream = 1};
  struct Known {
    bool by_record, by_label;
  };
  for (const auto& [by_record, by_label] :
       {Known{false, false}, {false, true}, {true, false}, {true, true}}) {
    for (const TemplateLevel level : {TemplateLevel::kName, TemplateLevel::kDevices}) {
      LaunchTemplates templates;
      templates.lists = {{}, {launch}};
      for (const auto& [node, launches] : {std::pair(record, by_record), {record + 1, by_label}}) {
        const TemplateKeys keys = template_keys(f.graph(), f.at(node));
        const auto at = static_cast<std::size_t>(level);
        templates.by_key[at][keys[at]] = {.list = launches ? 1U : 0U, .count = 1};
      }
      const LoweredOp op = Lowering(f.graph(), gpu, &templates).lower(record);
      ASSERT_EQ(op.calls.size(), 1U) << by_record << by_label;
      // A name alone says little of a record whose rule knows its arguments.
      const bool from_record = by_record && !by_label && level == TemplateLevel::kDevices;
      EXPECT_EQ(op.calls[0].node, from_record ? record : record + 1);
      EXPECT_FALSE(op.calls[0].inferred);
      ASSERT_EQ(op.calls[0].work, 0);
      EXPECT_EQ(op.work.front().bytes_read.value, 80 * 4);
    }
  }
}

TEST_F(OpRules, BucketizingCountsScansAndMoves) {
  // 12 bags with 100 values between them, in 4 blocks; int32.
  const auto ints = [&](std::int64_t count) { return f.tensor({count}, DType::kInt32); };
  const int node = f.node("fbgemm::block_bucketize_sparse_features",
                          {ints(12), ints(100), f.integer(0), f.integer(0), ints(2), f.integer(4)},
                          {ints(48), ints(100)});
  const auto lowered = f.lower(node, gpu);
  ASSERT_TRUE(lowered.ok);
  ASSERT_EQ(lowered.kernels.size(), 6U);  // a scan is two
  const KernelWork &counting = lowered.kernels[2], &moving = lowered.kernels[5];
  EXPECT_DOUBLE_EQ(lowered.kernels[1].bytes().value, 2 * 4 * 12);
  EXPECT_DOUBLE_EQ(counting.bytes_read.value, 4 * (12 + 100));
  EXPECT_DOUBLE_EQ(counting.bytes_written.value, 4 * 48);
  EXPECT_DOUBLE_EQ(lowered.kernels[4].bytes().value, 2 * 4 * 48);
  EXPECT_DOUBLE_EQ(moving.bytes_read.value, 4 * (12 + 48 + 100));
  EXPECT_DOUBLE_EQ(moving.bytes_written.value, 4 * 100);
}

TEST_F(OpRules, PooledVectorsArePermutedInOnePass) {
  const auto list = [&](std::int64_t count) { return f.tensor({count}, DType::kInt64); };
  const KernelWork work =
      one(f.node("fbgemm::permute_pooled_embs_auto_grad_split",
                 {f.tensor({6, 16}), list(3), list(2), list(3), list(2)}, {f.tensor({6, 16})}));
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4 * 6 * 16 + 8 * 10);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 4 * 6 * 16);
}

TEST_F(OpRules, MultiTensorLaunchRule) {
  const auto add = [&](int tensors, std::int64_t elements) {
    std::vector<Argument> self, other;
    for (int i = 0; i < tensors; ++i) {
      self.push_back(f.tensor({elements}));
      other.push_back(f.tensor({elements}));
    }
    const Argument a = f.list(self), b = f.list(other);
    return f.node("aten::_foreach_add_", {a, b, GraphFixture::integer(1)});
  };
  EXPECT_EQ(count(add(64, 100)), 1u);  // depth 2: 64 tensors per launch
  EXPECT_EQ(count(add(65, 100)), 2u);
  EXPECT_EQ(count(add(1, 320 * 65536)), 1u);  // 320 chunks per launch
  EXPECT_EQ(count(add(1, 320 * 65536 + 1)), 2u);
  const auto lowered = f.lower(add(65, 100), gpu);
  double bytes = 0;
  for (const KernelWork& work : lowered.kernels) bytes += work.bytes().value;
  EXPECT_DOUBLE_EQ(bytes, 65.0 * 100 * 4 * 3);  // two lists read, one written
  // More than any memory holds: no rule for that, rather than kernels without end.
  EXPECT_FALSE(f.lower(add(1, std::int64_t{1} << 52), gpu).ok);
}

TEST_F(OpRules, FusedAdamReadsFourListsAndWritesThree) {
  std::vector<Argument> lists;
  for (int i = 0; i < 4; ++i) lists.push_back(f.list({f.tensor({1000})}));
  lists.push_back(f.list({}));              // max_exp_avg_sqs
  lists.push_back(f.list({f.tensor({})}));  // state_steps
  const KernelWork work = one(f.node("aten::_fused_adam_", lists));
  EXPECT_EQ(work.family, KernelFamily::kOptimizer);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 16000);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 12000);
}

TEST_F(OpRules, CollectiveComesFromTheRecord) {
  auto& records = f.graph().comm_records;
  records.resize(3);
  records[0].collective = "allreduce";
  records[0].group_size = 8;
  records[1].collective = "wait";
  records[2].collective = "all_to_allv";
  records[2].in_splits = {10, 30};
  records[2].out_splits = {50, 50};
  const Argument list = f.list({f.tensor({1000})});
  const int reduce = f.node("record_param_comms", {list}, {list});
  f.at(reduce).comm = 0;
  const KernelWork work = one(reduce);
  EXPECT_EQ(std::get<CollectiveShape>(work.shape).kind, "all_reduce");
  EXPECT_EQ(std::get<CollectiveShape>(work.shape).world_size, 8);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4000);
  const int wait = f.node("record_param_comms", {f.tensor({1})});
  f.at(wait).comm = 1;
  EXPECT_EQ(count(wait), 0u);
  const int all_to_all = f.node("record_param_comms", {f.tensor({40})}, {f.tensor({100})});
  f.at(all_to_all).comm = 2;
  const KernelWork a2a = one(all_to_all);
  EXPECT_EQ(std::get<CollectiveShape>(a2a.shape).world_size, 2);
  EXPECT_DOUBLE_EQ(a2a.bytes_read.value, 160);
  EXPECT_DOUBLE_EQ(a2a.bytes_written.value, 400);
}

TEST_F(OpRules, CollectiveOfADescribedGroupNamesItsRanks) {
  auto& records = f.graph().comm_records;
  records.resize(2);
  records[0] = {.collective = "_reduce_scatter_base", .process_group = "3", .group_size = 2};
  records[1] = {.collective = "_reduce_scatter_base", .process_group = "4", .group_size = 2};
  f.graph().process_groups = {{.name = "3", .ranks = {1, 5}, .size = 2}, {.name = "4", .size = 2}};
  for (int i = 0; i < 2; ++i) {
    const int node = f.node("record_param_comms", {f.tensor({80})}, {f.tensor({40})});
    f.at(node).comm = i;
    const KernelWork work = one(node);
    const auto& shape = std::get<CollectiveShape>(work.shape);
    EXPECT_EQ(shape.kind, "reduce_scatter");
    EXPECT_EQ(shape.world_size, 2);
    EXPECT_EQ(shape.ranks,
              i == 0 ? (std::vector<std::int64_t>{1, 5}) : std::vector<std::int64_t>());
    EXPECT_DOUBLE_EQ(work.bytes_read.value, 320);
    EXPECT_DOUBLE_EQ(work.bytes_written.value, 160);
  }
}

TEST_F(OpRules, GatherReadsWhatItWritesNotTheTable) {
  const KernelWork work = one(f.node(
      "aten::index_select", {f.tensor({1000000, 16}), f.integer(0), f.tensor({10}, DType::kInt64)},
      {f.tensor({10, 16})}));
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 10.0 * 16 * 4 + 80);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 640);
}

TEST_F(OpRules, GathersKnowTheirRowsWhereRowsAreFound) {
  const Argument ten = f.tensor({10}, DType::kInt64);
  const auto rows = [&](const char* name, const std::vector<Argument>& inputs,
                        const std::vector<std::int64_t>& output) {
    const KernelWork work = one(f.node(name, inputs, {f.tensor(output)}));
    const auto* shape = std::get_if<RowShape>(&work.shape);
    return shape ? *shape : RowShape{};
  };
  const RowShape selected =
      rows("aten::index_select", {f.tensor({1000, 16}), f.integer(0), ten}, {10, 16});
  EXPECT_EQ(selected.rows, 10);
  EXPECT_EQ(selected.cols, 16);
  EXPECT_EQ(selected.table_rows, 1000);
  EXPECT_EQ(rows("aten::index", {f.tensor({1000, 16}), f.list({ten})}, {10, 16}).rows, 10);
  // Another axis, or two lists of indices: no rows of memory.
  EXPECT_EQ(rows("aten::index_select", {f.tensor({16, 1000}), f.integer(1), ten}, {16, 10}).rows,
            0);
  EXPECT_EQ(rows("aten::index", {f.tensor({8, 9, 9}), f.list({f.none(), ten, ten})}, {8, 10}).rows,
            0);
}

TEST_F(OpRules, AnIndexSelectThatCallsAGatherLeavesTheRowsToIt) {
  const Argument source = f.tensor({2048, 64}), output = f.tensor({204800, 64});
  const Argument expanded = f.tensor({204800, 64}, DType::kInt64);
  const KernelWork gather = one(
      f.node("aten::gather", {source, f.integer(0), expanded, f.boolean(false), output}, {output}));
  const auto& rows = std::get<RowShape>(gather.shape);
  EXPECT_EQ(rows.rows, 204800);
  EXPECT_EQ(rows.cols, 64);
  EXPECT_EQ(rows.table_rows, 2048);
  EXPECT_DOUBLE_EQ(gather.bytes_read.value, 204800.0 * (64 * 4 + 8));  // an index per row
  // Called by a program: an index for each element.
  const KernelWork each =
      one(f.node("aten::gather", {source, f.integer(0), expanded, f.boolean(false)}, {output}));
  EXPECT_DOUBLE_EQ(each.bytes_read.value, 204800.0 * 64 * (4 + 8));
}

TEST_F(OpRules, SumsIntoRowsSayHow) {
  const Argument table = f.tensor({1000, 64}), indices = f.tensor({500}, DType::kInt64);
  const KernelWork add = one(f.node(
      "aten::index_add_", {table, f.integer(0), indices, f.tensor({500, 64}), f.real(1)}, {table}));
  EXPECT_EQ(std::get<RowShape>(add.shape).access, RowAccess::kAdd);
  EXPECT_EQ(std::get<RowShape>(add.shape).rows, 500);
  // The lower triangle of a batch: an element per index and matrix.
  const Argument pairs = f.tensor({36}, DType::kInt64), square = f.tensor({2048, 9, 9});
  const auto sorted_of = [&](const Argument& self, const Argument& list, const Argument& values) {
    const int node = f.node("aten::_index_put_impl_",
                            {self, list, values, f.boolean(true), f.boolean(true)}, {self});
    const KernelWork last = f.lower(node, gpu).kernels.back();
    return std::get<RowShape>(last.shape);
  };
  const RowShape triangle =
      sorted_of(square, f.list({f.none(), pairs, pairs}), f.tensor({2048, 36}));
  EXPECT_EQ(triangle.access, RowAccess::kSortedAdd);
  EXPECT_EQ(triangle.rows, 2048 * 36);
  EXPECT_EQ(triangle.cols, 1);
  const RowShape whole = sorted_of(table, f.list({indices}), f.tensor({500, 64}));
  EXPECT_EQ(whole.rows, 500);
  EXPECT_EQ(whole.cols, 64);
}

TEST_F(OpRules, SumsOverOuterAxesAreStridedWhereShapesTell) {
  const auto strided = [&](const std::vector<std::int64_t>& input,
                           const std::vector<std::int64_t>& output) {
    const KernelWork work = one(f.node("aten::sum", {f.tensor(input)}, {f.tensor(output)}));
    return std::get<RowShape>(work.shape).is_strided;
  };
  EXPECT_TRUE(strided({2048, 512}, {512}));     // a bias gradient
  EXPECT_TRUE(strided({2048, 512}, {1, 512}));  // and with its axis kept
  EXPECT_TRUE(strided({8, 128, 512}, {512}));
  EXPECT_FALSE(strided({2048, 512}, {2048}));
  EXPECT_FALSE(strided({2048, 512}, {2048, 1}));
  EXPECT_FALSE(strided({2048, 512}, {}));
  EXPECT_FALSE(strided({512, 512}, {512}));  // either
}

TEST_F(OpRules, CatSplitsAt128Inputs) {
  std::vector<Argument> items(129, f.tensor({10}));
  const Argument list = f.list(items);
  EXPECT_EQ(count(f.node("aten::cat", {list, GraphFixture::integer(0)}, {f.tensor({1290})})), 2u);
}

TEST_F(OpRules, BatchNormReadsTwiceInTraining) {
  const auto norm = [&](bool training) {
    return one(f.node("aten::cudnn_batch_norm",
                      {f.tensor({2, 8, 4, 4}), f.tensor({8}), f.tensor({8}), f.tensor({8}),
                       f.tensor({8}), f.boolean(training), f.real(0.1), f.real(1e-5)},
                      {f.tensor({2, 8, 4, 4})}));
  };
  EXPECT_DOUBLE_EQ(norm(true).bytes_read.value, 2 * 256 * 4);
  EXPECT_DOUBLE_EQ(norm(false).bytes_read.value, 256 * 4);
}

TEST_F(OpRules, SoftmaxRowsFollowTheDimension) {
  const KernelWork work =
      one(f.node("aten::_softmax", {f.tensor({32, 100}), f.integer(-1), f.boolean(false)},
                 {f.tensor({32, 100})}));
  EXPECT_EQ(std::get<RowShape>(work.shape).rows, 32);
  EXPECT_EQ(std::get<RowShape>(work.shape).cols, 100);
}

TEST_F(OpRules, FlashAttentionCountsTwoProducts) {
  // b 2, h 4, s 128, d 64: 4 b h s s d FLOP
  const auto qkv = [&] { return f.tensor({2, 4, 128, 64}, DType::kFloat16); };
  const KernelWork work =
      one(f.node("aten::_scaled_dot_product_flash_attention", {qkv(), qkv(), qkv()}, {qkv()}));
  EXPECT_DOUBLE_EQ(work.flop.value, 4.0 * 2 * 4 * 128 * 128 * 64);
  EXPECT_DOUBLE_EQ(work.bytes().value, 4.0 * 2 * 4 * 128 * 64 * 2);
  EXPECT_EQ(work.family, KernelFamily::kAttention);
  const auto& shape = std::get<AttentionShape>(work.shape);
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(shape.heads, 4);
  EXPECT_EQ(shape.seq_q, 128);
  EXPECT_EQ(shape.head_dim, 64);
}

TEST_F(OpRules, AttentionOfGroupedQueriesReadsFewerKeys) {
  const auto q = f.tensor({2, 8, 128, 64}, DType::kFloat16);
  const auto kv = [&] { return f.tensor({2, 2, 128, 64}, DType::kFloat16); };
  const KernelWork work = one(f.node("aten::_scaled_dot_product_flash_attention", {q, kv(), kv()},
                                     {f.tensor({2, 8, 128, 64}, DType::kFloat16)}));
  EXPECT_DOUBLE_EQ(work.flop.value, 4.0 * 2 * 8 * 128 * 128 * 64);
  EXPECT_DOUBLE_EQ(work.bytes().value, 2.0 * 2 * (8 + 2 + 2 + 8) * 128 * 64);
  EXPECT_EQ(std::get<AttentionShape>(work.shape).kv_heads, 2);
}

TEST_F(OpRules, CausalAttentionCountsHalf) {
  const auto qkv = [&] { return f.tensor({2, 4, 128, 64}, DType::kFloat16); };
  const KernelWork work = one(
      f.node("aten::_scaled_dot_product_flash_attention",
             {qkv(), qkv(), qkv(), f.real(0), f.boolean(true)}, {qkv()},
             "aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, "
             "float dropout_p=0.0, bool is_causal=False) -> (Tensor output)"));
  EXPECT_TRUE(std::get<AttentionShape>(work.shape).causal);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 2 * 4 * 128 * 128 * 64);
}

TEST_F(OpRules, FurtherLaunchesAreParts) {
  using enum KernelFamily;
  const auto families = [&](int node) {
    std::vector<KernelFamily> made;
    for (const KernelWork& work : f.lower(node, gpu).kernels) made.push_back(work.family);
    return made;
  };
  using Families = std::vector<KernelFamily>;
  const auto half = [&](std::vector<std::int64_t> shape) {
    return f.tensor(shape, DType::kFloat16);
  };
  const auto qkv = [&] { return half({2, 4, 128, 64}); };
  EXPECT_EQ(families(f.node("aten::_scaled_dot_product_flash_attention_backward",
                            {qkv(), qkv(), qkv(), qkv()}, {qkv(), qkv(), qkv()})),
            (Families{kReduction, kAttention, kPart}));
  EXPECT_EQ(families(f.node("aten::_scaled_dot_product_efficient_attention_backward",
                            {qkv(), qkv(), qkv(), qkv()}, {qkv(), qkv(), qkv()})),
            (Families{kReduction, kAttention}));
  // cuBLAS splits k where the result is small.
  const auto product = [&](std::int64_t m, std::int64_t k, std::int64_t n) {
    return families(f.node("aten::mm", {f.tensor({m, k}), f.tensor({k, n})}, {f.tensor({m, n})}));
  };
  EXPECT_EQ(product(64, 4096, 64), (Families{kGemm, kPart}));
  EXPECT_EQ(product(64, 64, 64), Families{kGemm});
  EXPECT_EQ(product(4096, 4096, 4096), Families{kGemm});
  EXPECT_EQ(families(f.node("aten::mm", {half({512, 4096}), half({4096, 512})})), Families{kGemm});
  EXPECT_EQ(families(f.node("aten::mm", {half({512, 16384}), half({16384, 512})})),
            (Families{kGemm, kPart}));
  gpu.vendor = "amd";
  EXPECT_EQ(product(64, 4096, 64), Families{kGemm});
}

TEST_F(OpRules, PackedAttentionCountsItsTokens) {
  // 300 tokens of at most 128: 300 x 128 scores per head, two products of 2 x 64 each
  const auto qkv = [&] { return f.tensor({300, 4, 64}, DType::kFloat16); };
  const KernelWork work =
      one(f.node("aten::_flash_attention_forward",
                 {qkv(), qkv(), qkv(), f.none(), f.none(), f.integer(128), f.integer(128)}, {qkv()},
                 "aten::_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? "
                 "cum_seq_q, Tensor? cum_seq_k, SymInt max_q, SymInt max_k) -> (Tensor output)"));
  EXPECT_DOUBLE_EQ(work.flop.value, 4.0 * 300 * 128 * 4 * 64);
  EXPECT_EQ(std::get<AttentionShape>(work.shape).batch, 2);
}

TEST_F(OpRules, DropoutIsItsOwnFamily) {
  const KernelWork work =
      one(f.node("aten::native_dropout", {f.tensor({100}), f.real(0.1), f.boolean(true)},
                 {f.tensor({100}), f.tensor({100}, DType::kBool)}));
  EXPECT_EQ(work.family, KernelFamily::kDropout);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 500);
}

TEST_F(OpRules, LibraryLstmIsInputProductsAndSequencesOfSteps) {
  // 25 steps, batch 16, 32 features, H 64, two layers: input products [400, 256, 32 and 64]
  const auto rnn = [&](const char* name, const Gpu& on, bool bidirectional = false) {
    const auto lowered = f.lower(
        f.node(name, {f.tensor({25, 16, 32}), f.none(), f.integer(4), f.none(), f.none(), f.none(),
                      f.integer(2), f.integer(64), f.integer(0), f.integer(2), f.boolean(false),
                      f.real(0), f.boolean(true), f.boolean(bidirectional)}),
        on);
    EXPECT_TRUE(lowered.ok);
    return lowered.kernels;
  };
  Gpu old = gpu;
  old.architecture = test_support::architecture("pascal");
  // One layer after the other.
  const auto forward = rnn("aten::_cudnn_rnn", old);
  ASSERT_EQ(forward.size(), 4u);
  EXPECT_DOUBLE_EQ(forward[0].flop.value, 2.0 * 400 * 256 * 32);
  EXPECT_DOUBLE_EQ(forward[2].flop.value, 2.0 * 400 * 256 * 64);
  EXPECT_EQ(forward[1].family, KernelFamily::kRecurrent);
  EXPECT_DOUBLE_EQ(forward[1].flop.value, 2.0 * 4 * 64 * 64 * 16 * 25);
  const auto backward = rnn("aten::_cudnn_rnn_backward", old);
  ASSERT_EQ(backward.size(), 6u);
  EXPECT_DOUBLE_EQ(backward[2].flop.value, 2 * forward[1].flop.value);
  // Today's libraries run layers side by side, unless two directions lie between them.
  const auto beside = rnn("aten::_cudnn_rnn", gpu);
  ASSERT_EQ(beside.size(), 3u);
  EXPECT_EQ(std::get<RecurrentShape>(beside[2].shape).layers, 2);
  EXPECT_DOUBLE_EQ(beside[2].flop.value, 2 * forward[1].flop.value);
  EXPECT_EQ(rnn("aten::_cudnn_rnn_backward", gpu).size(), 5u);
  EXPECT_EQ(rnn("aten::_cudnn_rnn", gpu, true).size(), 8u);
}

TEST_F(OpRules, PersistentLstmIsWhatPyTorchAsksFor) {
  const auto persistent = [&](DType dtype, std::int64_t batch, std::int64_t mode,
                              std::int64_t layers, const char* architecture) {
    Gpu on = gpu;
    on.num_sms = 108;
    on.architecture = test_support::architecture(architecture);
    const auto lowered = f.lower(
        f.node("aten::_cudnn_rnn",
               {f.tensor({25, batch, 128}, dtype), f.none(), f.integer(4), f.none(), f.none(),
                f.none(), f.integer(mode), f.integer(512), f.integer(0), f.integer(layers),
                f.boolean(false), f.real(0), f.boolean(true), f.boolean(false)}),
        on);
    return std::get<RecurrentShape>(lowered.kernels.back().shape).persistent;
  };
  EXPECT_TRUE(persistent(DType::kFloat16, 64, 2, 1, "ampere"));
  EXPECT_FALSE(persistent(DType::kFloat32, 64, 2, 1, "ampere"));
  EXPECT_FALSE(persistent(DType::kFloat16, 64, 2, 2, "ampere"));
  EXPECT_FALSE(persistent(DType::kFloat16, 64, 3, 1, "ampere"));  // GRU
  EXPECT_FALSE(persistent(DType::kFloat16, 136, 2, 1, "ampere"));
  EXPECT_TRUE(persistent(DType::kFloat16, 64, 3, 1, "volta"));
  EXPECT_FALSE(persistent(DType::kFloat16, 80, 2, 1, "volta"));
  EXPECT_FALSE(persistent(DType::kFloat16, 64, 2, 1, "turing"));
}

TEST_F(OpRules, WavefrontIsOneSequenceOfAllLayers) {
  const auto lowered =
      f.lower(f.node("recurrent::wavefront",
                     {f.tensor({25, 16, 32}), f.none(), f.integer(4), f.none(), f.none(), f.none(),
                      f.integer(2), f.integer(64), f.integer(0), f.integer(2), f.boolean(false),
                      f.real(0), f.boolean(true), f.boolean(false)}),
              gpu);
  ASSERT_EQ(lowered.kernels.size(), 3u);  // two products of inputs
  EXPECT_EQ(std::get<RecurrentShape>(lowered.kernels[2].shape).layers, 2);
  EXPECT_DOUBLE_EQ(lowered.kernels[2].flop.value, 2 * 2.0 * 4 * 64 * 64 * 16 * 25);
}

TEST_F(OpRules, TritonMovesEachTensorOnce) {
  const int node =
      f.node("triton", {f.tensor({100}), f.tensor({100}), f.tensor({100}), f.integer(100)});
  const KernelWork work = one(node);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 800);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 400);
}

TEST_F(OpRules, TritonReadsInputsAndWritesOutputsWhereBothAreKnown) {
  // Updated in place: read and written.
  const Argument in_place = f.tensor({100});
  const KernelWork work = one(
      f.node("triton", {in_place, f.tensor({10}), f.integer(100)}, {in_place, f.tensor({100})}));
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 440);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 800);
}

// Inductor's template of a product with a bias in its epilogue: bias, A, B, result. The rule is
// found by the backend of the node.
TEST_F(OpRules, TritonTemplatesAreProducts) {
  const int node = f.node("triton_tem_fused_addmm_0", {f.tensor({64}), f.tensor({32, 128}),
                                                       f.tensor({128, 64}), f.tensor({32, 64})});
  std::vector<KernelWork> kernels;
  ASSERT_TRUE(OpRuleRegistry::builtin().find("triton")->lower(
      OpView{f.graph(), f.at(node), nullptr}, gpu, kernels));
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].family, KernelFamily::kGemm);
  EXPECT_DOUBLE_EQ(kernels[0].flop.value, 2.0 * 32 * 64 * 128);
  EXPECT_DOUBLE_EQ(kernels[0].bytes_read.value, 4.0 * (32 * 128 + 128 * 64 + 64));
  EXPECT_DOUBLE_EQ(kernels[0].bytes_written.value, 4.0 * 32 * 64);
}

// The template of max-autotune with the gradient of a GELU after the product: A, B, what the
// epilogue reads, and its result in a wider type.
TEST_F(OpRules, TritonTemplatesComputeTheirEpilogues) {
  const KernelWork gelu = one(f.node("aten::gelu", {f.tensor({1})}, {f.tensor({1})}));
  const int node = f.node("triton_tem_fused_gelu_mm_0",
                          {f.tensor({32, 128}), f.tensor({128, 64}), f.tensor({32, 64})},
                          {f.tensor({32, 64}), f.tensor({32, 64})});
  std::vector<KernelWork> kernels;
  ASSERT_TRUE(OpRuleRegistry::builtin().find("triton")->lower(
      OpView{f.graph(), f.at(node), nullptr}, gpu, kernels));
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_DOUBLE_EQ(kernels[0].flop.value, 2.0 * 32 * 64 * 128 + gelu.flop.value * 32 * 64);
  EXPECT_DOUBLE_EQ(kernels[0].bytes_read.value, 4.0 * (32 * 128 + 128 * 64 + 32 * 64));
  EXPECT_DOUBLE_EQ(kernels[0].bytes_written.value, 2 * 4.0 * 32 * 64);
}

TEST_F(OpRules, EmptyTensorsLaunchNothing) {
  EXPECT_EQ(count(f.node("aten::add", {f.tensor({0}), f.tensor({0})}, {f.tensor({0})})), 0u);
  EXPECT_EQ(count(f.node("aten::mm", {f.tensor({0, 4}), f.tensor({4, 4})}, {f.tensor({0, 4})})),
            0u);
}

}  // namespace op_rules_test
}  // namespace perfmodel
