#include "kernels_bench/kernels/copy.hpp"

#include <cstring>
#include <numeric>

#include "kernel_support.hpp"
#include "kernels_bench/kernels/multiply_add.hpp"

namespace kernels_bench {
namespace copy_kernel_test {

TEST(CopyKernel, CopiesEveryByteAndNoMore) {
  for (const std::int64_t bytes : {0, 1, 15, 16, 17, 255, 1024, 5000, 16411}) {
    const auto in = Tensor<std::uint8_t>::random(bytes, 1);
    Tensor<std::uint8_t> out(bytes + 1);
    run_emulated(kernels::Copy{in.data(), out.data(), bytes}, {.blocks = 3});
    EXPECT_EQ(std::memcmp(in.data(), out.data(), bytes), 0) << bytes;
    EXPECT_EQ(out[bytes], 0xff) << bytes;
  }
}

template <class Word>
void expect_strided_copy(std::int64_t words_per_row, std::int64_t words) {
  using Bytes = Tensor<std::uint8_t>;
  const auto size = static_cast<std::int64_t>(sizeof(Word));
  const auto in = Bytes::random(2 * (words + words_per_row) * size, 2);
  Bytes out(words * size);
  run_emulated(kernels::StridedCopy<Word>{reinterpret_cast<const Word*>(in.data()),
                                          reinterpret_cast<Word*>(out.data()), words, words_per_row,
                                          kernels::Divider(words_per_row, words)},
               {.blocks = 3});
  const std::int64_t row_bytes = words_per_row * size;
  for (std::int64_t i = 0; i < words * size; ++i) {
    ASSERT_EQ(out[i], in[i / row_bytes * 2 * row_bytes + i % row_bytes]) << i;
  }
}

TEST(StridedCopyKernel, LeavesOutEveryOtherRow) {
  expect_strided_copy<std::uint8_t>(3, 100);
  expect_strided_copy<std::uint16_t>(1, 500);
  expect_strided_copy<std::uint32_t>(7, 333);
  expect_strided_copy<kernels::Vector<std::uint32_t, 4>>(5, 401);
}

TEST(ReadSumKernel, SeesEveryWordInEveryPass) {
  for (const std::int64_t vectors : {1, 63, 64, 1000}) {
    const auto in = Tensor<std::uint32_t>::random(vectors * 4, 3);
    const std::int64_t passes = 5, blocks = 3;
    Tensor<std::uint32_t> out(blocks);
    run_emulated(kernels::ReadSum{in.data(), out.data(), vectors, passes},
                 {.blocks = blocks, .shared_bytes = kernels::ReadSum::shared_bytes(16)});
    const auto once = std::accumulate(in.data(), in.data() + in.size(), 0U);
    EXPECT_EQ(std::accumulate(out.data(), out.data() + blocks, 0U), once * 5) << vectors;
  }
}

TEST(ReadSumKernel, ReadsAtLeastOneGibibyte) {
  EXPECT_EQ(kernels::read_passes(std::int64_t{1} << 30), 1);
  EXPECT_EQ(kernels::read_passes((std::int64_t{1} << 30) - 1), 2);
  EXPECT_EQ(kernels::read_passes(std::int64_t{1} << 40), 1);
  EXPECT_EQ(kernels::read_passes(1024), 1 << 20);
}

template <class T>
class MultiplyAddKernel : public testing::Test {};
TYPED_TEST_SUITE(MultiplyAddKernel, TensorTypes, TypeNames);

TYPED_TEST(MultiplyAddKernel, ChainsTendToTheFixedPoint) {
  Tensor<float> out(32);
  run_emulated(kernels::MultiplyAddChains<TypeParam>{out.data(), 0.5F, 0.375F, 64}, {.blocks = 2});
  for (const double sum : out.all()) EXPECT_NEAR(sum, 8 * 0.75, 8 * 0.75 * kTolerance<TypeParam>);
}

}  // namespace copy_kernel_test
}  // namespace kernels_bench
