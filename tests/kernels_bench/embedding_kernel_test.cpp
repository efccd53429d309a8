#include "kernels_bench/kernels/embedding.hpp"

#include <map>
#include <numeric>

#include "kernel_support.hpp"

namespace kernels_bench {
namespace embedding_kernel_test {

template <class T>
class EmbeddingKernel : public testing::Test {};
using RowTypes = testing::Types<float, Half>;
TYPED_TEST_SUITE(EmbeddingKernel, RowTypes, TypeNames);

template <class T>
struct Problem {
  kernels::EmbeddingShape shape;
  Tensor<T> weights = Tensor<T>::random(shape.tables * shape.rows * shape.dim, 1);
  Tensor<std::int64_t> indices = random_indices(shape.lookups(), shape.rows, 2);
  Tensor<float> gradient = Tensor<float>::random(shape.bags() * shape.dim, 3);

  /// Over all tables.
  std::int64_t row_of(std::int64_t lookup) const {
    return lookup / (shape.batch * shape.pooling) * shape.rows + indices[lookup];
  }
  /// Offset of the lookup's bag in [batch, tables * dim].
  std::int64_t output_of(std::int64_t lookup) const {
    const std::int64_t bag = lookup / shape.pooling;
    const std::int64_t table = bag / shape.batch, sample = bag % shape.batch;
    return sample * shape.tables * shape.dim + table * shape.dim;
  }
  /// Gradient per row, summed over its lookups.
  std::map<std::int64_t, reference::Row> row_gradients() const {
    std::map<std::int64_t, reference::Row> sums;
    for (std::int64_t i = 0; i < shape.lookups(); ++i) {
      auto& sum = sums.try_emplace(row_of(i), shape.dim).first->second;
      for (std::int64_t d = 0; d < shape.dim; ++d) sum[d] += gradient[output_of(i) + d];
    }
    return sums;
  }
};

template <class T, int N, int kBags, int kAhead>
void expect_forward(const kernels::EmbeddingShape& shape) {
  const Problem<T> problem{shape};
  Tensor<float> out(shape.bags() * shape.dim);
  run_emulated(
      kernels::EmbeddingForward<T, N, kBags, kAhead>{problem.weights.data(), problem.indices.data(),
                                                     out.data(), shape, 4},
      {.blocks = 2});
  reference::Row expected(out.size());
  for (std::int64_t i = 0; i < shape.lookups(); ++i) {
    const auto row = problem.weights.row(problem.row_of(i) * shape.dim, shape.dim);
    for (std::int64_t d = 0; d < shape.dim; ++d) expected[problem.output_of(i) + d] += row[d];
  }
  expect_near(out.all(), expected, 2e-6);
}

TYPED_TEST(EmbeddingKernel, Forward) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_forward<TypeParam, kWidest, 1, 8>({2, 50, 7, 21, 40});
  expect_forward<TypeParam, kWidest, 1, 8>({1, 1, 1, 8, 16});
  expect_forward<TypeParam, kWidest, 2, 4>({3, 50, 5, 3, 16});  // 15 bags in pairs
  expect_forward<TypeParam, kWidest, 4, 1>({3, 50, 7, 1, 8});
  expect_forward<TypeParam, 1, 1, 8>({2, 50, 7, 10, 13});
  expect_forward<TypeParam, 1, 4, 1>({1, 50, 1, 1, 1});
}

template <class T, int N>
void expect_sgd(const kernels::EmbeddingShape& shape) {
  Problem<T> problem{shape};
  reference::Row expected = problem.weights.all();
  for (const auto& [row, gradient] : problem.row_gradients()) {
    for (std::int64_t d = 0; d < shape.dim; ++d) expected[row * shape.dim + d] -= 0.1 * gradient[d];
  }
  run_emulated(kernels::EmbeddingBackwardSgd<T, N>{problem.weights.data(), problem.indices.data(),
                                                   problem.gradient.data(), shape, 0.1F, 4},
               {.blocks = 2});
  // fp16 rows round at every add.
  expect_near(problem.weights.all(), expected, 10 * kTolerance<T>);
}

TYPED_TEST(EmbeddingKernel, BackwardSgd) {
  expect_sgd<TypeParam, 1>({2, 50, 7, 5, 40});
  expect_sgd<TypeParam, 1>({1, 9, 3, 1, 13});  // odd: fp16 rows begin in the middle of pairs
  if constexpr (std::is_same_v<TypeParam, Half>) expect_sgd<TypeParam, 2>({2, 50, 7, 5, 22});
}

template <class T, int N, int kParts>
void expect_adagrad(const kernels::EmbeddingShape& shape, int lanes) {
  Problem<T> problem{shape};
  auto state = Tensor<float>::random(shape.tables * shape.rows, 4, 0, 1);
  reference::Row expected = problem.weights.all(), expected_state = state.all();
  for (const auto& [row, gradient] : problem.row_gradients()) {
    auto values = problem.weights.row(row * shape.dim, shape.dim);
    reference::adagrad(values, expected_state[row], gradient, 0.1, 1e-8);
    std::copy(values.begin(), values.end(), expected.begin() + row * shape.dim);
  }

  const std::int64_t lookups = shape.lookups();
  Tensor<std::uint32_t> keys(lookups), bags(lookups);
  run_emulated(kernels::EmbeddingKeys{problem.indices.data(), keys.data(), bags.data(), shape,
                                      kernels::Divider(shape.pooling, lookups)},
               {.blocks = 2});
  std::vector<std::int64_t> order(lookups);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return keys[a] < keys[b]; });
  Tensor<std::uint32_t> sorted_keys(lookups), sorted_bags(lookups);
  for (std::int64_t i = 0; i < lookups; ++i) {
    ASSERT_EQ(keys[i], problem.row_of(i));
    sorted_keys[i] = keys[order[i]];
    sorted_bags[i] = bags[order[i]];
  }

  kernels::AdagradRuns<T, N, kParts> body{};
  body.weights = problem.weights.data();
  body.state = state.data();
  body.gradient = problem.gradient.data();
  body.keys = sorted_keys.data();
  body.bags = sorted_bags.data();
  body.shape = shape;
  body.optimizer = {0.1F, 1e-8F};
  body.lanes = lanes;
  Tensor<float> partial(body.chunks() * shape.dim);
  std::fill_n(partial.data(), partial.size(), 0.0F);
  body.partial = partial.data();
  run_emulated(body, {.blocks = 2});
  body.finish = true;
  run_emulated(body, {.blocks = 2});
  expect_near(problem.weights.all(), expected, 2 * kTolerance<T>);
  expect_near(state.all(), expected_state, 4e-6);
}

TYPED_TEST(EmbeddingKernel, BackwardRowWiseAdagrad) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_adagrad<TypeParam, kWidest, 1>({2, 50, 40, 5, kWidest * 4}, 4);
  expect_adagrad<TypeParam, kWidest, 2>({1, 1000, 33, 3, kWidest * 7}, 4);
  expect_adagrad<TypeParam, kWidest, 4>({1, 3, 9, 30, kWidest * 3}, 1);  // runs over many chunks
  expect_adagrad<TypeParam, 1, 1>({1, 1, 64, 2, 3}, 4);  // one run of all, ending with a chunk
  expect_adagrad<TypeParam, 1, 4>({3, 20, 11, 1, 13}, 4);
  expect_adagrad<TypeParam, 1, 1>({1, 5, 1, 1, 1}, 1);
}

}  // namespace embedding_kernel_test
}  // namespace kernels_bench
