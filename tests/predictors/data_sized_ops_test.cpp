// Kernels and waits of ops whose results are as large as the data say.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_fixture.hpp"

namespace perfmodel {
namespace data_sized_ops_test {

using test_support::GraphFixture;

struct Counted {
  std::size_t kernels = 0, read_backs = 0;
  friend bool operator==(const Counted&, const Counted&) = default;
  friend void PrintTo(const Counted& counted, std::ostream* out) {
    *out << counted.kernels << " kernels, " << counted.read_backs << " read back";
  }
};

class DataSizedOps : public ::testing::Test {
 protected:
  std::vector<KernelWork> kernels(int node) {
    const auto lowered = f.lower(node, gpu);
    EXPECT_TRUE(lowered.known && lowered.ok);
    return lowered.kernels;
  }
  // Pageable copies to the host, for which it waits, and everything else.
  Counted count(int node) {
    Counted counted;
    for (const KernelWork& work : kernels(node)) {
      const auto* copy = std::get_if<CopyShape>(&work.shape);
      const bool waits = copy && copy->kind == CopyKind::kDeviceToHost && copy->pageable;
      ++(waits ? counted.read_backs : counted.kernels);
    }
    return counted;
  }
  Argument keys(std::int64_t count) { return f.tensor({count}, DType::kInt64); }

  GraphFixture f;
  Gpu gpu = test_support::round_gpu();
  const Argument yes = GraphFixture::boolean(true), no = GraphFixture::boolean(false);
};

// One block sorts 1,000 keys; a selection has an init kernel.
TEST_F(DataSizedOps, UniqueSortsAndCompacts) {
  EXPECT_EQ(count(f.node("aten::_unique2", {keys(1000), yes, no, no}, {keys(10)})),
            (Counted{1 + 2, 1}));
  // 100,000 keys of 8 bytes: histogram, sums, eight passes.
  EXPECT_EQ(count(f.node("aten::_unique2", {keys(100'000), yes, no, no}, {keys(10)})),
            (Counted{10 + 2, 1}));
  // The inverse: numbers, marks, a scan of two kernels, a scatter.
  EXPECT_EQ(count(f.node("aten::_unique2", {keys(1000), yes, yes, no}, {keys(10), keys(1000)})),
            (Counted{1 + 1 + 4 + 2, 1}));
  EXPECT_EQ(count(f.node("aten::unique_consecutive", {keys(1000), yes, no},
                         {keys(10), keys(1000), keys(0)})),
            (Counted{3 + 2, 1}));
}

TEST_F(DataSizedOps, ACountThatAChildReadsIsNotReadAgain) {
  const int node = f.node("aten::_unique2", {keys(1000), yes, no, no}, {keys(10)});
  f.adopt(node, {f.node("aten::item", {keys(1)})});
  EXPECT_EQ(count(node), (Counted{3, 0}));
}

// Rows are sorted by a comparison: 10,000 of them are five blocks of 2,048, merged in three rounds
// of two kernels.
TEST_F(DataSizedOps, UniqueRowsAreMergedInRounds) {
  const Argument rows = f.tensor({10'000, 4}, DType::kInt64), kept = f.tensor({9'000, 4});
  const int node =
      f.node("aten::unique_dim", {rows, GraphFixture::integer(0), yes, no, no}, {kept});
  EXPECT_EQ(count(node), (Counted{1 + (1 + 3 * 2) + 2 + 1, 1}));
  const Argument few = f.tensor({2048, 4}, DType::kInt64);
  EXPECT_EQ(count(f.node("aten::unique_dim", {few, GraphFixture::integer(0), yes, no, no},
                         {f.tensor({5, 4})})),
            (Counted{1 + 1 + 2 + 1, 1}));
}

TEST_F(DataSizedOps, NonzeroCountsReadsAndSelects) {
  const Argument mask = f.tensor({64, 64}, DType::kBool), found = f.tensor({7, 2}, DType::kInt64);
  EXPECT_EQ(count(f.node("aten::nonzero", {mask}, {found})), (Counted{2 + 2 + 1, 1}));
  EXPECT_EQ(count(f.node("aten::masked_select", {f.tensor({64, 64}), mask}, {f.tensor({7})})),
            (Counted{2 + 2 + 1, 1}));
  EXPECT_EQ(count(f.node("aten::nonzero", {f.cpu_tensor({64}, DType::kBool)}, {})), Counted{});
}

TEST_F(DataSizedOps, HistogramsReadTheirLimits) {
  const Argument x = keys(5000), bins = keys(100), floats = f.tensor({5000}), hist = f.tensor({10});
  // Two reductions, a fill, the histogram.
  EXPECT_EQ(
      count(f.node("aten::bincount", {x, GraphFixture::none(), GraphFixture::integer(0)}, {bins})),
      (Counted{4, 2}));
  const auto histc = [&](double least, double largest) {
    return count(f.node(
        "aten::histc",
        {floats, GraphFixture::integer(10), GraphFixture::real(least), GraphFixture::real(largest)},
        {hist}));
  };
  EXPECT_EQ(histc(0, 0), (Counted{4, 2}));
  EXPECT_EQ(histc(0, 1), (Counted{2, 0}));
}

TEST_F(DataSizedOps, EqualReadsItsAnswer) {
  EXPECT_EQ(count(f.node("aten::equal", {f.tensor({100}), f.tensor({100})}, {yes})),
            (Counted{2, 1}));
  EXPECT_EQ(count(f.node("aten::equal", {f.tensor({100}), f.tensor({50})}, {no})), Counted{});
}

// 5,000 lookups are three blocks, merged in two rounds. Values of 16 floats are read once.
TEST_F(DataSizedOps, CoalesceSortsMergesAndReadsTheNumberOfRows) {
  const Argument sparse = f.tensor({10'000, 16}), values = f.tensor({5000, 16});
  const Argument merged = f.tensor({4000, 16});
  const int node = f.node("aten::_coalesce", {sparse}, {sparse});
  f.adopt(node, {f.node("aten::_values", {sparse}, {values}),
                 f.node("aten::_sparse_coo_tensor_unsafe", {keys(4000), merged}, {sparse})});
  EXPECT_EQ(count(node), (Counted{2 + (1 + 2 * 2) + 2 + 1, 1}));
  const KernelWork sums = kernels(node).back();
  EXPECT_DOUBLE_EQ(sums.bytes_read.value, 5000 * (16 * 4 + 16));
  EXPECT_DOUBLE_EQ(sums.bytes_written.value, 4000 * 16 * 4);
  EXPECT_FALSE(f.lower(f.node("aten::_coalesce", {sparse}, {sparse}), gpu).ok);
}

TEST_F(DataSizedOps, RenormKeepsItsCountOnTheGpu) {
  const int node =
      f.node("aten::embedding_renorm_",
             {f.tensor({1000, 8}), keys(100), GraphFixture::real(1), GraphFixture::real(2)}, {});
  EXPECT_EQ(count(node), (Counted{1 + 2 + 1, 0}));
}

}  // namespace data_sized_ops_test
}  // namespace perfmodel
