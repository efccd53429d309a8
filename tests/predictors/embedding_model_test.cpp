#include <gtest/gtest.h>

#include <cmath>

#include "graph_fixture.hpp"
#include "price/index_skew.hpp"
#include "price/kernels/embedding_rates.hpp"

namespace perfmodel {
namespace embedding_model_test {

using test_support::round_gpu;

EmbeddingShape shape() {
  return {.batch = 10000, .num_tables = 4, .num_rows = 1e5, .dim = 128, .pooling_factor = 10};
}

double time(const EmbeddingShape& s, KernelFamily family = KernelFamily::kEmbeddingForward) {
  return KernelModels::heuristic().price({.family = family, .shape = s}, round_gpu()).time.count();
}

TEST(EmbeddingForward, RatesOfADataSheet) {
  // 100 SMs x 64 warps x 0.71 = 4544 bags in flight; 40000 bags = 8.80 waves;
  // chain 0.55 us x (3 + 10/16) = 1.994 us; empty kernel 1.6 us
  const EmbeddingRates rates = embedding_rates(shape(), round_gpu());
  EXPECT_NEAR(rates.bags_in_flight, 4544, 1e-9);
  EXPECT_NEAR(rates.fixed_us, 1.6 + 1.994, 1e-3);
  EXPECT_NEAR(rates.stall_us, (40000.0 / 4544 - 1) * 1.99375, 1e-9);
  EXPECT_NEAR(rates.dram_bytes_per_us, 0.89e6, 1e-6);
  EXPECT_DOUBLE_EQ(rates.cache_bytes, 10e6);
}

TEST(EmbeddingForward, TrafficInSectors) {
  // 10000 bags of one table at a time: 9 MB / 512 B = 17578 rows of 1e5 stay;
  // filled after T = -1e5 ln(1 - 0.17578) = 19332 draws of 1e5; misses 17578 + 80668 x 0.82422
  const EmbeddingTraffic t =
      embedding_forward_traffic(shape(), embedding_rates(shape(), round_gpu()));
  const double misses = 17578 + (1e5 + 1e5 * std::log(1 - 0.17578)) * (1 - 0.17578);
  EXPECT_NEAR(t.hit_rate, 1 - misses / 1e5, 1e-6);
  const double streams = 96 + 96 + 512;  // offsets, 10 indices of 8 B in 3 sectors, result
  EXPECT_NEAR(t.l2_bytes, 40000 * (streams + 10 * 512), 1);
  EXPECT_NEAR(t.missed_row_bytes, 4 * misses * 512, 1e3);
  EXPECT_NEAR(t.dram_bytes, 40000 * streams + 4 * misses * 512, 1e3);
}

TEST(EmbeddingForward, TablesInFlightShareTheCache) {
  EmbeddingShape s = shape();
  s.batch = 2272;  // two tables fill the GPU
  s.num_rows = 1e5;
  EmbeddingRates rates = embedding_rates(s, round_gpu());
  const double shared = embedding_forward_traffic(s, rates).hit_rate;
  rates.bags_in_flight = 2272;
  const double alone = embedding_forward_traffic(s, rates).hit_rate;
  EXPECT_GT(alone, shared);
}

TEST(EmbeddingForward, TermsAddAsSquares) {
  const EmbeddingRates rates{.fixed_us = 2,
                             .stall_us = 30,
                             .l2_bytes_per_us = 2e6,
                             .dram_bytes_per_us = 1e6,
                             .cache_bytes = 1e12,
                             .bags_in_flight = 1000};
  EmbeddingShape s = shape();
  s.num_rows = 1;  // everything but one row hits
  const EmbeddingTraffic t = embedding_forward_traffic(s, rates);
  EXPECT_NEAR(t.hit_rate, 1 - 1e-5, 1e-9);
  const Price price = embedding_forward_price(s, rates);
  EXPECT_NEAR(price.time.count(), 2 + std::hypot(30, t.l2_bytes / 2e6, t.dram_bytes / 1e6), 1e-9);
  EXPECT_NEAR(price.memory.count(), std::hypot(t.l2_bytes / 2e6, t.dram_bytes / 1e6), 1e-9);
  EXPECT_EQ(price.bound, Bound::kMemory);
}

TEST(EmbeddingForward, NarrowRowsFromDramCostMore) {
  // 32 floats: factor 1.55; 33 floats are 160 B in sectors: 1.1; nothing hits
  const EmbeddingRates rates{.l2_bytes_per_us = 1e12, .dram_bytes_per_us = 1e6};
  const auto memory = [&](double dim) {
    EmbeddingShape s{.batch = 1000, .num_rows = 1e9, .dim = dim, .pooling_factor = 10};
    const EmbeddingTraffic t = embedding_forward_traffic(s, rates);
    EXPECT_EQ(t.hit_rate, 0);
    return embedding_forward_price(s, rates).memory.count() -
           (t.dram_bytes - t.missed_row_bytes) / 1e6;
  };
  EXPECT_NEAR(memory(32), 1.55 * 10000 * 128 / 1e6, 1e-6);
  EXPECT_NEAR(memory(33), 1.1 * 10000 * 160 / 1e6, 1e-6);
  EXPECT_NEAR(memory(65), 1.0 * 10000 * 288 / 1e6, 1e-6);
}

TEST(EmbeddingForward, NoJumpWhereTheCacheFills) {
  double last = 0;
  for (double rows = 1e4; rows < 1e6; rows *= 1.02) {
    EmbeddingShape s = shape();
    s.num_rows = rows;
    const double now = time(s);
    EXPECT_GE(now, last) << rows;
    EXPECT_LT(now, 1.03 * (last > 0 ? last : now)) << rows;
    last = now;
  }
}

TEST(EmbeddingForward, SkewRaisesHits) {
  EmbeddingShape s = shape();
  s.num_rows = 1e7;
  double last = time(s);
  for (double exponent : {0.4, 0.8, 1.05, 1.5}) {
    s.zipf_exponent = exponent;
    const double now = time(s);
    EXPECT_LT(now, last) << exponent;
    last = now;
  }
  // The hit rate as in an LRU cache of 0.9 x 10 MB / 512 B rows that starts empty.
  s.zipf_exponent = 0.89;
  s.zipf_shift = 2.75;
  const IndexSkew skew({.rows = 1e7, .exponent = 0.89, .shift = 2.75});
  EXPECT_NEAR(embedding_forward_traffic(s, embedding_rates(s, round_gpu())).hit_rate,
              1 - skew.lru_misses(1e5, 17578) / 1e5, 1e-9);
}

TEST(EmbeddingBackward, SkewTouchesFewerRows) {
  EmbeddingShape s = shape();
  s.num_rows = 1e6;
  const auto dram = [&](double unique) {  // gradients, rows read and written, sorted indices
    return 4 * (1e4 * 512 + unique * 1024 + 1e5 * 16);
  };
  const double latency = 1.6 + 4 * 0.55;
  EXPECT_NEAR(time(s, KernelFamily::kEmbeddingBackward),
              latency + dram(IndexSkew({.rows = 1e6}).unique_rows(1e5)) / 0.89e6 / 0.8, 1e-6);
  s.zipf_exponent = 0.6;
  const double unique = IndexSkew({.rows = 1e6, .exponent = 0.6}).unique_rows(1e5);
  EXPECT_LT(unique, 0.95 * IndexSkew({.rows = 1e6}).unique_rows(1e5));
  EXPECT_NEAR(time(s, KernelFamily::kEmbeddingBackward), latency + dram(unique) / 0.89e6 / 0.8,
              1e-6);
}

TEST(EmbeddingModels, ALawThatMakesNoSenseIsOutOfRange) {
  for (auto family : {KernelFamily::kEmbeddingForward, KernelFamily::kEmbeddingBackward}) {
    EmbeddingShape s = shape();
    const auto price = [&] {
      return KernelModels::heuristic().price({.family = family, .shape = s}, round_gpu());
    };
    EXPECT_TRUE(price().in_range);
    const double uniform = price().time.count();
    s.zipf_exponent = -1;
    EXPECT_FALSE(price().in_range);
    EXPECT_DOUBLE_EQ(price().time.count(), uniform);
    s = shape();
    s.zipf_shift = -2;
    s.zipf_exponent = 1;
    EXPECT_FALSE(price().in_range);
  }
}

TEST(EmbeddingModels, EmptyShapesHaveAFiniteTime) {
  for (auto family : {KernelFamily::kEmbeddingForward, KernelFamily::kEmbeddingBackward}) {
    EXPECT_TRUE(std::isfinite(time({}, family)));
    EXPECT_TRUE(std::isfinite(time(
        {.batch = 0, .num_rows = 10, .dim = 8, .pooling_factor = 2, .zipf_exponent = 1}, family)));
  }
}

}  // namespace embedding_model_test
}  // namespace perfmodel
