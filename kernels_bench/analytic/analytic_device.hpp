#pragma once

#include <memory>

#include "../core/device.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace kernels_bench {

/// A GPU that exists on paper alone, so that campaigns, fits and predictions can be tried and
/// tested without one. Not a model of any product, and not the equations of `predictors/`:
///
///   t = 1.8 us + ((compute)^4 + (memory)^4)^(1/4)
///
///   memory   (bytes + 1.2 MB) / 1400 GB/s; times 1.25 for strided sums and runs of under 128
///   bytes;
///            embedding rows count once per distinct row of uniform indices, times
///            (1 + exp(-s)) / 2 for a skew s, 2.2 times that to update them, 1.6 times to sort
///   compute  products: whole waves of 128 x 64 tiles on 100 SMs, each tile 2 x 128 x 64 x (k + 96)
///            FLOP at its SM's share of the peak, 5 % more where A is transposed; else FLOP at
///            18 TFLOP/s
///   calls    fixed costs in the range of real drivers
///
/// Each repetition is the law's time times exp(0.004 z), z normal, the same in every run.
std::unique_ptr<Device> make_analytic_device();

/// The law without the noise [us].
double analytic_time_us(const Case& point);

}  // namespace kernels_bench
