#pragma once

#include "perfmodel/predictors/kernel.hpp"

/// Steps of recurrent layers as today's libraries run them (cuDNN 9.19 on Hopper): a product and a
/// pointwise kernel per step and layer, layers of a stack side by side on streams of their own.
namespace perfmodel::kernels {

/// Times of one layer and time step in one direction, with the launches of a product's parts.
struct LibraryStep {
  double walk_us = 0;     ///< the product, from its first loads to its last sum
  double kernels_us = 0;  ///< pointwise kernel, adding up of the product's parts
  double gaps_us = 0;     ///< starts of the kernels and gaps between them
  double alone_us() const { return walk_us + kernels_us + gaps_us; }
};

/// m = B rows, n columns, summed axis k; forward n = g H, k = H, backward n = H, k = g H. A block
/// holds a tile of e x e results (e = 32, 64 or 128), an SM one block at a time:
///
///   tiles = ceil(m / e) ceil(n / e)
///   parts = backward min(SMs / tiles, 7, k / 200), at least one; forward one
///   walk  = ceil(tiles / SMs) k / parts (d / clock + 2 e e / (P / SMs))   least over e
///
/// d: cycles per element of k besides its sums, which nothing hides: loads that the next ones wait
/// for. P: peak of the type's products [FLOP/us]. Two blocks on an SM take 0.7 to 1 times as long
/// as one after the other (products of 32 x 32 x 1120: 72 cycles per element for two, 109 for
/// three).
LibraryStep library_step(const RecurrentShape& shape, bool is_backward, double flop_per_us,
                         const Gpu& gpu);

/// All steps of L layers, T each [us]. The library cuts T into nine parts; the next layer begins a
/// part when this one has ended it:
///
///   path     (T + (L - 1) ceil(T / 9)) step alone
///   device   T L (walk + kernels): SMs that one product fills have no room for the next
///   host     T L kernels 8.7 us, at most T L steps alone: one thread starts all kernels, two per
///            step forward, three backward, so that layers run side by side only as far as it
///            runs ahead
///   t        the largest
double library_steps_us(const RecurrentShape& shape, bool is_backward, const LibraryStep& step);

/// Calls by which a library starts all work of its layers, products of inputs and resets of memory
/// too. One if the weights stay in registers.
double launches_of_steps(const RecurrentShape& shape);

}  // namespace perfmodel::kernels
