#include "perfmodel/predictors/detail/price_cache.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "graph_fixture.hpp"
#include "kernel_mix.hpp"
#include "price_matchers.hpp"

namespace perfmodel {
namespace price_cache_test {

using test_support::is_same_price;
using test_support::kernel_mix;
using test_support::round_gpu;

const KernelModels& models() { return KernelModels::heuristic(); }

/// One kernel of each kind of shape that has a key.
std::vector<KernelWork> one_of_each() {
  return {
      {.family = KernelFamily::kSmall, .bytes_read = {64}},
      gemm_work({.batch = 3, .m = 64, .n = 96, .k = 128}, DType::kFloat32, false),
      convolution_work({.pass = ConvolutionShape::Pass::kForward,
                        .n = 8,
                        .c = 16,
                        .h = 28,
                        .w = 28,
                        .k = 32,
                        .r = 3,
                        .s = 3,
                        .p = 28,
                        .q = 28},
                       DType::kFloat32, false),
      embedding_forward_work(
          {.batch = 64, .num_tables = 4, .num_rows = 1e5, .dim = 64, .pooling_factor = 20}),
      memcpy_work(1e6, {.kind = CopyKind::kHostToDevice, .pageable = true}),
      softmax_work(512, 1024, RowPass::kForward, DType::kFloat32),
      attention_work({.batch = 2, .heads = 8, .seq_q = 128, .seq_k = 256, .head_dim = 64},
                     DType::kFloat16, true),
      recurrent_work({.hidden = 512, .batch = 32, .timesteps = 25}, DType::kFloat32),
  };
}

/// Every kernel that differs from the given one in a single field.
std::vector<KernelWork> neighbours(const KernelWork& work) {
  std::vector<KernelWork> result;
  const auto vary = [&](const auto& change) {
    result.push_back(work);
    change(result.back());
  };
  vary([](KernelWork& w) { w.matrix_units = !w.matrix_units; });
  vary([](KernelWork& w) { w.dtype = DType::kFloat64; });
  vary([](KernelWork& w) { w.layout = Layout::kMixedTypes; });
  vary([](KernelWork& w) { w.flop.value += 1; });
  vary([](KernelWork& w) { w.bytes_read.value += 1; });
  vary([](KernelWork& w) { w.bytes_written.value += 1; });
  const auto vary_shape = [&]<class Shape, class... Fields>(Shape*, Fields Shape::*... fields) {
    (vary([&](KernelWork& w) {
       auto& field = std::get<Shape>(w.shape).*fields;
       using Field = std::remove_reference_t<decltype(field)>;
       if constexpr (std::is_same_v<Field, bool>) {
         field = !field;
       } else {
         field = static_cast<Field>(static_cast<std::int64_t>(field) + 1);
       }
     }),
     ...);
  };
  using C = ConvolutionShape;
  using E = EmbeddingShape;
  using A = AttentionShape;
  using R = RecurrentShape;
  if (std::holds_alternative<GemmShape>(work.shape)) {
    using G = GemmShape;
    vary_shape(static_cast<G*>(nullptr), &G::batch, &G::m, &G::n, &G::k, &G::a_transposed,
               &G::b_transposed, &G::has_bias);
  } else if (std::holds_alternative<C>(work.shape)) {
    vary_shape(static_cast<C*>(nullptr), &C::pass, &C::n, &C::c, &C::h, &C::w, &C::k, &C::r, &C::s,
               &C::p, &C::q, &C::groups, &C::stride);
  } else if (std::holds_alternative<E>(work.shape)) {
    vary_shape(static_cast<E*>(nullptr), &E::batch, &E::num_tables, &E::num_rows, &E::dim,
               &E::pooling_factor, &E::weight_bytes, &E::index_bytes, &E::output_bytes,
               &E::optimizer_bytes_per_row, &E::zipf_exponent, &E::zipf_shift, &E::is_serial);
  } else if (std::holds_alternative<CopyShape>(work.shape)) {
    vary_shape(static_cast<CopyShape*>(nullptr), &CopyShape::kind, &CopyShape::pageable,
               &CopyShape::run_bytes);
  } else if (std::holds_alternative<RowShape>(work.shape)) {
    vary_shape(static_cast<RowShape*>(nullptr), &RowShape::rows, &RowShape::cols,
               &RowShape::is_strided, &RowShape::table_rows, &RowShape::batch, &RowShape::access,
               &RowShape::zipf_exponent);
  } else if (std::holds_alternative<A>(work.shape)) {
    vary_shape(static_cast<A*>(nullptr), &A::method, &A::pass, &A::batch, &A::heads, &A::seq_q,
               &A::seq_k, &A::head_dim, &A::causal, &A::kv_heads, &A::writes_cache, &A::kernel);
  } else if (std::holds_alternative<R>(work.shape)) {
    vary_shape(static_cast<R*>(nullptr), &R::cell, &R::pass, &R::hidden, &R::batch, &R::timesteps);
  } else if (std::holds_alternative<GroupedGemmShape>(work.shape)) {
    using P = GroupedGemmShape;
    vary_shape(static_cast<P*>(nullptr), &P::groups, &P::rows, &P::n, &P::k, &P::imbalance);
  } else if (std::holds_alternative<ExpertsShape>(work.shape)) {
    using X = ExpertsShape;
    vary_shape(static_cast<X*>(nullptr), &X::kernel, &X::tokens, &X::hidden, &X::inter, &X::experts,
               &X::topk, &X::routing, &X::power_law);
  } else if (std::holds_alternative<HashedProductShape>(work.shape)) {
    using H = HashedProductShape;
    vary_shape(static_cast<H*>(nullptr), &H::scheme, &H::is_weight_gradient, &H::m, &H::n, &H::k,
               &H::elements, &H::tile_k, &H::tile_n);
  } else if (std::holds_alternative<LinearAttentionShape>(work.shape)) {
    using L = LinearAttentionShape;
    vary_shape(static_cast<L*>(nullptr), &L::kernel, &L::batch, &L::seq, &L::k_heads, &L::k_dim,
               &L::v_heads, &L::v_dim, &L::filter);
  }
  return result;
}

TEST(PriceCache, PricesAreThoseOfTheModels) {
  PriceCache cache(models(), round_gpu());
  const auto work = kernel_mix(3000);
  for (int round = 0; round < 2; ++round) {
    for (const KernelWork& w : work) {
      ASSERT_TRUE(is_same_price(cache.price(w), models().price(w, round_gpu())));
    }
  }
}

TEST(PriceCache, ManyAtOnceAreThoseOfTheModels) {
  PriceCache cache(models(), round_gpu());
  auto work = kernel_mix(3000);
  work.resize(3000 - 1);
  for (std::size_t known : {0U, 1000U, 2999U}) {
    for (std::size_t i = 0; i < known; ++i) cache.price(work[i]);
    std::vector<Price> prices(work.size());
    cache.price_many(work, prices);
    for (std::size_t i = 0; i < work.size(); ++i) {
      ASSERT_TRUE(is_same_price(prices[i], models().price(work[i], round_gpu())));
    }
  }
  EXPECT_EQ(cache.misses(), cache.size());  // equal kernels are asked about once
  EXPECT_GT(cache.size(), 2900U);
}

TEST(PriceCache, OneKernelManyTimesIsOneEntry) {
  PriceCache cache(models(), round_gpu());
  const std::vector<KernelWork> work(100, kernel_mix(1).front());
  std::vector<Price> prices(work.size());
  cache.price_many(work, prices);
  EXPECT_EQ(cache.size(), 1U);
  for (const KernelWork& w : work) cache.price(w);
  EXPECT_EQ(cache.misses(), 1U);
}

TEST(PriceCache, EveryFieldTellsKernelsApart) {
  PriceCache cache(models(), round_gpu());
  std::uint64_t asked = 0;
  for (const KernelWork& work : one_of_each()) {
    std::vector<KernelWork> all = neighbours(work);
    all.push_back(work);
    for (int round = 0; round < 2; ++round) {
      for (const KernelWork& w : all) {
        ASSERT_TRUE(is_same_price(cache.price(w), models().price(w, round_gpu())))
            << to_string(w.family);
      }
    }
    asked += all.size();
    EXPECT_EQ(cache.misses(), asked) << to_string(work.family);
  }
}

TEST(PriceCache, FamiliesOfTheSameWorkAreApart) {
  PriceCache cache(models(), round_gpu());
  KernelWork work{.family = KernelFamily::kElementwise, .bytes_read = {1e6}};
  const Microseconds elementwise = cache.price(work).time;
  work.family = KernelFamily::kIndex;
  EXPECT_GT(cache.price(work).time, elementwise);
}

TEST(PriceCache, CollectivesGoToTheModelsEachTime) {
  PriceCache cache(models(), round_gpu());
  const KernelWork work{.family = KernelFamily::kCollective,
                        .bytes_read = {1e6},
                        .bytes_written = {1e6},
                        .shape = CollectiveShape{.kind = "all_reduce", .world_size = 4}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_same_price(cache.price(work), models().price(work, round_gpu())));
  }
  EXPECT_EQ(cache.misses(), 3U);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(PriceCache, CapacityIsAPowerOfTwo) {
  EXPECT_EQ(PriceCache(models(), round_gpu(), 0).capacity(), PriceCache::kProbes);
  EXPECT_EQ(PriceCache(models(), round_gpu(), 64).capacity(), 64U);
  EXPECT_EQ(PriceCache(models(), round_gpu(), 65).capacity(), 128U);
}

TEST(PriceCache, HalfFullForgetsNextToNothing) {
  PriceCache cache(models(), round_gpu(), 16384);
  const auto work = kernel_mix(8192);
  for (const KernelWork& w : work) cache.price(w);
  const std::uint64_t distinct = cache.misses();
  for (const KernelWork& w : work) cache.price(w);
  EXPECT_LE(cache.misses() - distinct, 82U);  // 1 %
}

TEST(PriceCache, FullStaysWithinItsMemoryAndRight) {
  PriceCache cache(models(), round_gpu(), 64);
  const auto work = kernel_mix(5000);
  for (const KernelWork& w : work) {
    ASSERT_TRUE(is_same_price(cache.price(w), models().price(w, round_gpu())));
  }
  EXPECT_EQ(cache.size(), 64U);
  EXPECT_EQ(cache.capacity(), 64U);
  // The last entry replaced another and is known.
  const std::uint64_t misses = cache.misses();
  cache.price(work.back());
  EXPECT_EQ(cache.misses(), misses);
}

/// Threads with different orders of the same kernels, one by one and in bulk.
void hammer(std::size_t capacity) {
  constexpr int kThreads = 8;
  const auto work = kernel_mix(1000);
  std::vector<Price> expected(work.size());
  models().price_many(work, round_gpu(), expected);
  PriceCache cache(models(), round_gpu(), capacity);
  std::array<int, kThreads> wrong{};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(static_cast<unsigned>(thread));
        for (int i = 0; i < 20000; ++i) {
          const std::size_t at = random() % work.size();
          if (i % 100 == 0) {
            const std::size_t count = std::min<std::size_t>(50, work.size() - at);
            std::vector<Price> prices(count);
            cache.price_many(std::span(work).subspan(at, count), prices);
            for (std::size_t j = 0; j < count; ++j) {
              wrong[thread] += !is_same_price(prices[j], expected[at + j]);
            }
          }
          wrong[thread] += !is_same_price(cache.price(work[at]), expected[at]);
        }
      });
    }
  }
  for (int count : wrong) EXPECT_EQ(count, 0);
  EXPECT_LE(cache.size(), cache.capacity());
}

TEST(PriceCache, ThreadsWithRoomForAll) { hammer(4096); }
TEST(PriceCache, ThreadsThatReplaceEachOthersPrices) { hammer(64); }
TEST(PriceCache, ThreadsInTheSmallestCache) { hammer(1); }

}  // namespace price_cache_test
}  // namespace perfmodel
