#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::kernels {

/// Whether batch_norm_price() knows the kernels: a batch norm of a half type in training, in
/// PyTorch's own kernels, of a known number of images (`RowShape::batch`).
bool knows_batch_norm(const KernelWork& work);

/// A batch norm of a half type in PyTorch's own kernels (ATen/native/cuda/Normalization.cuh, 2.11).
/// Blocks of 512 threads take their elements in iterations, each of which waits for memory:
///
///   t = t_empty + (chain^3 + issue^3 + memory^3)^(1/3)
///   chain = waves (t_setup + iterations t_iteration)
///   issue = blocks (iterations + i_0) 512 / (rate speed SMs clock)
///
/// NCHW: a block per channel, so that few channels leave SMs idle; forward statistics, then the
/// result in blocks of one image's channel each, backward one kernel. NHWC: blocks of up to 32
/// channels, of which up to 128 share a channel and wait for each other; statistics or sums, then
/// the result. Fitted on the bf16 rows of PyTorch 2.11 on H100 and H200 (data/measurements, first
/// draw; the sweep's seed tells the images' sizes), cold operands: 69, 92, 46 and 45 rows, mean
/// errors 4, 5, 7 and 4 %. In a step, the forward pass finds its image in L2 if it fits. `speed`:
/// of row kernels, relative to Hopper's.
Price batch_norm_price(const RowShape& shape, bool backward, double speed, const Gpu& gpu);

}  // namespace perfmodel::kernels
