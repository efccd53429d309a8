// Results of Inductor's lowering and scheduler on small graphs of loops.
#include "rewrite/fusion/loop_kernels.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "rewrite/fusion/flow_network.hpp"
#include "rewrite/fusion/loop_addends.hpp"
#include "rewrite/fusion/reduction_parts.hpp"
#include "rewrite/fusion/saved_values.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kRows = 64, kColumns = 128, kAll = kRows * kColumns;

struct Loops {
  LoopGraph graph = {};
  bool in_backward = false;

  std::int32_t input(std::int64_t numel = kAll) { return graph.add(LoopValue{.numel = numel}); }
  std::int32_t add(LoopKind kind, std::vector<std::int32_t> reads, std::string name = "mul") {
    const std::int64_t made = kind == LoopKind::kRows      ? kRows
                              : kind == LoopKind::kColumns ? kColumns
                                                           : kAll;
    const std::int32_t result = graph.add(LoopValue{.numel = made});
    LoopOp op{.kind = kind, .name = std::move(name), .writes = {result}};
    for (const std::int32_t read : reads) {
      op.reads.push_back({read, graph.values[read].numel, true});
    }
    op.rows = made;
    op.columns = kAll / made;
    op.in_backward = in_backward;
    graph.add(std::move(op));
    return result;
  }
  std::int32_t leaves(std::int32_t value) {
    graph.values[value].leaves = true;
    return value;
  }
  std::vector<LoopKernel> kernels(Epilogues epilogues = Epilogues::kApart) {
    std::vector<std::int32_t> ops(graph.ops.size());
    std::iota(ops.begin(), ops.end(), 0);
    std::vector<bool> is_output;
    for (const LoopValue& value : graph.values) is_output.push_back(value.leaves);
    return loop_kernels(graph, ops, is_output, epilogues);
  }
};

// A product of which a GPU computes many tiles, with a template for it.
constexpr std::int64_t kManyTiles = 128;
std::vector<LoopKernel> with_epilogues(Loops& loops) {
  for (LoopValue& value : loops.graph.values) value.numel *= kManyTiles;
  for (LoopOp& op : loops.graph.ops) {
    op.rows *= kManyTiles;
    for (LoopRead& read : op.reads) read.numel *= kManyTiles;
  }
  return loops.kernels(Epilogues::kInProducts);
}

TEST(LoopKernels, NormIsOneKernel) {
  Loops loops;
  const auto x = loops.add(LoopKind::kPointwise, {loops.input(), loops.input()}, "add");
  const auto mean = loops.add(LoopKind::kRows, {x}, "mean");
  loops.leaves(loops.add(LoopKind::kPointwise, {x, mean}, "sub"));
  const auto kernels = loops.kernels();
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].kind, LoopKind::kRows);
  EXPECT_EQ(kernels[0].reads.size(), 2U);   // the sum is computed where it is read
  EXPECT_EQ(kernels[0].writes.size(), 1U);  // the mean stays inside
  EXPECT_EQ(names_of_ops(loops.graph, kernels[0]), "add_mean_sub");
}

TEST(LoopKernels, SumsOfColumnsAreKernelsOfTheirOwn) {
  Loops loops;
  const auto x = loops.leaves(loops.add(LoopKind::kPointwise, {loops.input()}));
  loops.leaves(loops.add(LoopKind::kColumns, {x}, "sum"));
  EXPECT_EQ(loops.kernels().size(), 2U);
}

TEST(LoopKernels, EpiloguesRunInProducts) {
  Loops loops;
  const auto x = loops.add(LoopKind::kLibrary, {loops.input(), loops.input()}, "mm");
  const auto y = loops.leaves(loops.add(LoopKind::kPointwise, {x, loops.input()}, "gelu_backward"));
  EXPECT_EQ(loops.kernels(Epilogues::kInProducts).size(), 2U);  // too few tiles
  const auto kernels = with_epilogues(loops);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].product, 0);
  EXPECT_EQ(kernels[0].reads.size(), 3U);
  EXPECT_EQ(kernels[0].writes, std::vector<std::int32_t>{y});
  EXPECT_EQ(names_of_ops(loops.graph, kernels[0]), "gelu_backward_mm");
}

TEST(LoopKernels, EpiloguesWriteTheProductThatOthersRead) {
  Loops loops;
  const auto x = loops.add(LoopKind::kLibrary, {loops.input()}, "mm");
  const auto y = loops.add(LoopKind::kPointwise, {x}, "gelu");
  loops.leaves(loops.add(LoopKind::kLibrary, {x, y}, "topk"));
  const auto kernels = with_epilogues(loops);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].writes, (std::vector<std::int32_t>{x, y}));
}

TEST(LoopKernels, LoopsOfReductionsAreNoEpilogues) {
  Loops loops;
  const auto x = loops.add(LoopKind::kLibrary, {loops.input()}, "mm");
  const auto sum = loops.add(LoopKind::kRows, {x}, "sum");
  loops.leaves(loops.add(LoopKind::kPointwise, {x, sum}, "sub"));
  const auto kernels = with_epilogues(loops);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[1].product, -1);
}

// x + mm(x): the sum is the epilogue of the product that it reads last.
TEST(LoopKernels, EpiloguesWaitForWhatTheyRead) {
  Loops loops;
  const auto x = loops.add(LoopKind::kLibrary, {loops.input()}, "mm");
  const auto y = loops.add(LoopKind::kLibrary, {x}, "mm");
  loops.leaves(loops.add(LoopKind::kPointwise, {x, y}, "add"));
  const auto kernels = with_epilogues(loops);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].product, -1);
  EXPECT_EQ(kernels[1].product, 1);
}

TEST(LoopKernels, LibraryCallsReadMemory) {
  Loops loops;
  const auto x = loops.add(LoopKind::kPointwise, {loops.input()});
  const auto y = loops.add(LoopKind::kLibrary, {x}, "mm");
  loops.leaves(loops.add(LoopKind::kPointwise, {y, x}));
  const auto kernels = loops.kernels();
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_EQ(kernels[0].writes, std::vector<std::int32_t>{x});
}

TEST(LoopKernels, WhatReadsMuchIsComputedOnce) {
  const auto kernels = [](std::size_t inputs) {
    Loops loops;
    std::vector<std::int32_t> read;
    for (std::size_t i = 0; i < inputs; ++i) read.push_back(loops.input());
    const auto x = loops.add(LoopKind::kPointwise, read);
    const auto between =
        loops.add(LoopKind::kLibrary, {loops.add(LoopKind::kPointwise, {x})}, "mm");
    loops.leaves(loops.add(LoopKind::kPointwise, {x, between}));
    return loops.kernels();
  };
  EXPECT_EQ(kernels(4).back().reads.size(), 5U);  // computes it again
  EXPECT_EQ(kernels(5).back().reads.size(), 2U);
}

// torch/_inductor/ir.py on an H100: gradients of a bias of 768 over 2,048 rows in 16 parts, as the
// recording gpt2-small-512.compile-b4 has them.
TEST(ReductionParts, FollowInductor) {
  const auto parts = [](LoopKind kind, std::int64_t rows, std::int64_t columns) {
    return parts_of_reduction({.kind = kind, .rows = rows, .columns = columns});
  };
  EXPECT_EQ(parts(LoopKind::kColumns, 768, 2048), 16);
  EXPECT_EQ(parts(LoopKind::kColumns, 3072, 2048), 16);
  EXPECT_EQ(parts(LoopKind::kColumns, 50257, 2048), 1);
  EXPECT_EQ(parts(LoopKind::kRows, 2048, 768), 1);
  EXPECT_EQ(parts(LoopKind::kRows, 1, 16384), 2);
}

TEST(FlowNetwork, CutsTheCheapestEdge) {
  FlowNetwork network(4);
  network.add(0, 1, 3);
  network.add(1, 2, 2);
  network.add(2, 3, 5);
  EXPECT_EQ(network.reached_after_flow(0, 3), (std::vector<bool>{true, true, false, false}));
}

// y = mm(gelu(h)), h = mm(x): the backward pass of gelu reads h; the second product's reads gelu(h)
// if its weight needs a gradient.
TEST(SavedValues, KeepWhatLibraryCallsMakeAndRead) {
  const auto saved = [](bool product_reads_it) {
    Loops loops;
    const auto h = loops.add(LoopKind::kLibrary, {loops.input()}, "mm");
    const auto g = loops.add(LoopKind::kPointwise, {h}, "gelu");
    loops.leaves(loops.add(LoopKind::kLibrary, {g}, "mm"));
    loops.in_backward = true;
    const auto gradient = loops.input();
    if (product_reads_it) loops.leaves(loops.add(LoopKind::kLibrary, {gradient, g}, "mm"));
    loops.leaves(loops.add(LoopKind::kPointwise, {gradient, h, g}, "gelu_backward"));
    const PassesOfRegion passes = split_passes(loops.graph);
    return std::pair<bool, bool>(passes.is_saved[h], passes.is_saved[g]);
  };
  EXPECT_EQ(saved(false), std::pair(true, false));
  EXPECT_EQ(saved(true), std::pair(true, true));
}

TEST(LoopAddends, GoWhereTheSumIsRead) {
  const auto place = [](LoopKind reader) {
    Loops loops;
    const auto bias = loops.input(kColumns);
    const auto sum = loops.add(LoopKind::kLibrary, {bias, loops.input(), loops.input()}, "addmm");
    loops.leaves(loops.add(reader, {sum}));
    std::vector<std::int32_t> ops = {0, 1};
    std::vector<bool> is_output;
    for (const LoopValue& value : loops.graph.values) is_output.push_back(value.leaves);
    place_addends(loops.graph, ops, is_output);
    return ops.size();
  };
  EXPECT_EQ(place(LoopKind::kPointwise), 3U);  // the loop adds the bias
  EXPECT_EQ(place(LoopKind::kLibrary), 2U);
}

}  // namespace
}  // namespace perfmodel
