#pragma once

#include "perfmodel/predictors/kernel.hpp"

/// The forward model of table-batched embedding bags, with the GPU's rates explicit: rates fitted
/// to a measured embedding kernel can replace the data sheet's.
namespace perfmodel {

/// Rates of a GPU for one forward launch.
struct EmbeddingRates {
  double fixed_us = 0;  ///< empty kernel and the dependent loads of the first bags
  double stall_us = 0;  ///< all later waves of bags, each waiting for its dependent loads
  double l2_bytes_per_us = 0, dram_bytes_per_us = 0;
  double cache_bytes = 0;     ///< last-level cache
  double bags_in_flight = 1;  ///< warps that the GPU holds at a time; each walks one bag
};

/// From the data sheet: W = 0.71 (measured occupancy) of the warps that fit,
///   chain = t_dram (3 + L / 16)   offsets, index, row; about 16 rows of a bag in flight
///   fixed = t_empty + chain,  stall = max(0, B T / W - 1) chain
EmbeddingRates embedding_rates(const EmbeddingShape& shape, const Gpu& gpu);

struct EmbeddingTraffic {
  double hit_rate = 0;          ///< share of row reads that find their row in the cache
  double l2_bytes = 0;          ///< between SMs and cache: everything
  double dram_bytes = 0;        ///< rows that miss, offsets, indices and results
  double missed_row_bytes = 0;  ///< the part for rows
  double dram_cost_bytes = 0;   ///< dram_bytes with rows that miss counted f times (see below)
};

/// Bytes of one forward launch. R rounds up to sectors of 32 bytes; w, i, o are the item sizes:
///
///   L2 bytes   = B T (96 + R(i L) + R(o D) + L R(w D))
///   DRAM bytes = B T (96 + R(i L) + R(o D) + (1 - hit) L R(w D))
///
/// A table's share of the cache is C = 0.9 cache / n bytes with n = min(T, ceil(W / B)) tables in
/// flight: blocks are issued table by table. Its rows stay there as in an LRU cache that starts
/// empty: hit = 1 - misses / (B L), see `IndexSkew::lru_misses`; uniform indices have closed forms.
EmbeddingTraffic embedding_forward_traffic(const EmbeddingShape& shape,
                                           const EmbeddingRates& rates);

/// t = fixed + sqrt(stall^2 + (L2 bytes / B_L2)^2 + (DRAM bytes / B_DRAM)^2): the three share one
/// queue of loads, so none hides another if they are alike. Rows that miss count f
/// times, f = 1.55 for rows of up to 128 bytes, 1.1 up to 256, else 1: short scattered reads use
/// DRAM pages badly.
Price embedding_forward_price(const EmbeddingShape& shape, const EmbeddingRates& rates);

/// Bytes of the backward pass with its optimizer, without the sort of the indices before it.
struct EmbeddingBackwardTraffic {
  double touched_rows = 0;  ///< per table: expected distinct ones
  double l2_bytes = 0;      ///< gradients of bags, once per lookup
  double dram_bytes = 0;    ///< gradients once, touched rows and state twice, sorted indices
  double cost_factor = 1;   ///< on both: f for narrow rows, over 0.8 as reads turn to writes
};

/// DRAM bytes = T (B R(D o) + U (2 R(D w) + state)) + T B L (i + 8), L2 bytes = T B L R(D o), with
/// U = expected distinct rows of B L draws.
EmbeddingBackwardTraffic embedding_backward_traffic(const EmbeddingShape& shape);

}  // namespace perfmodel
