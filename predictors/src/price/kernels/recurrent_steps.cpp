#include "recurrent_steps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "price/kernel_work.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Backward products of H100's lstm-1024x4-b128, lstm-512x2-b128 and lstm-256x1-b32
/// (data/measurements/h100-sxm-80gb, all `train`) have 4, 7 and 5 parts of 1024, 293 and 205.
constexpr double kShortestPart = 200, kMostStepParts = 7;
/// Share of pointwise kernels and adding up in a step's time outside its product: 2.3 of 6.3 us
/// forward, 4.4 of 9.6 backward.
constexpr double kKernelShare = 0.42;
/// Batch 128: eight parts of four steps and one of three (batch 32: five of seven).
constexpr double kPartsOfSequence = 9;
/// lstm-256x1-b32 without a profiler: 3.23 ms of host, 1.30 of it outside the layer, 220 kernels.
constexpr double kHostUsPerLaunch = 8.7;
constexpr double kForwardKernels = 2, kBackwardKernels = 3;
/// Per layer and step, products of inputs in parts and resets of memory too: 3.0, 2.3 and 2.3 of
/// the three programs forward, 3.3, 4.2 and 4.2 backward.
constexpr double kForwardLaunches = 2.5, kBackwardLaunches = 3.9;

double walk_us(double m, double n, double k, bool splits, double depth_us, double flop_per_us,
               double sms) {
  double least = std::numeric_limits<double>::infinity();
  for (const double edge : {32.0, 64.0, 128.0}) {
    const double tiles = std::ceil(m / edge) * std::ceil(n / edge);
    // Not whole, so that a larger product never takes less time.
    const double most = std::min({kMostStepParts, sms / tiles, k / kShortestPart});
    const double parts = splits ? std::max(1.0, most) : 1;
    const double waves = parts > 1 ? 1 : std::ceil(tiles / sms);
    const double sums_us = 2 * edge * edge / (flop_per_us / sms);
    least = std::min(least, waves * k / parts * (depth_us + sums_us));
  }
  return least;
}

}  // namespace

LibraryStep library_step(const RecurrentShape& s, bool is_backward, double flop_per_us,
                         const Gpu& gpu) {
  const RecurrentCycles& cycles = *gpu.architecture.recurrent_cycles;
  const RecurrentStepCycles& own = is_backward ? cycles.backward_data : cycles.forward;
  const double h = static_cast<double>(s.hidden), wide = gates_of(s.cell) * h;
  const double clock = terms::clock_mhz(gpu), beside = own.cell / clock;
  return {.walk_us = walk_us(static_cast<double>(s.batch), is_backward ? h : wide,
                             is_backward ? wide : h, is_backward, own.depth / clock, flop_per_us,
                             static_cast<double>(gpu.num_sms)),
          .kernels_us = kKernelShare * beside,
          .gaps_us = (1 - kKernelShare) * beside};
}

double library_steps_us(const RecurrentShape& s, bool is_backward, const LibraryStep& step) {
  const double n = static_cast<double>(s.timesteps), layers = static_cast<double>(s.layers);
  const double path = n + (layers - 1) * std::ceil(n / kPartsOfSequence);
  const double kernels = is_backward ? kBackwardKernels : kForwardKernels;
  const double host = std::min(kernels * kHostUsPerLaunch, step.alone_us());
  const double device = step.walk_us + step.kernels_us;
  return std::max(path * step.alone_us(), n * layers * std::max(device, host));
}

double launches_of_steps(const RecurrentShape& s) {
  using Pass = RecurrentShape::Pass;
  if (s.persistent || s.pass == Pass::kBackwardWeights) return 1;
  const double launches = s.pass == Pass::kForward ? kForwardLaunches : kBackwardLaunches;
  return launches * static_cast<double>(s.timesteps) * static_cast<double>(s.layers);
}

}  // namespace perfmodel::kernels
