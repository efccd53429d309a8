#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::kernels {

/// A sum over the slow axis of a matrix (the gradient of a bias) in PyTorch's reduce_kernel,
/// without the time to read it [us].
///
///   t = t_empty + waves rounds t_round  [+ t_split + t_part ceil(splits / threads_y)]
///
/// The launch follows setReduceConfig() of ATen/native/cuda/Reduce.cuh: threads side by side sum up
/// to 4 neighbouring columns each, 4 rows a round. From 256 rows per thread on, `splits` blocks
/// share a column (the bracket): each writes its part, and the last one adds the parts up. So a sum
/// of twice the rows can take a third of the time. A matrix below a hundredth of L2 was still there
/// when it was measured, so its rounds take half. t_round, t_split, t_part: fitted on sums and
/// means of PyTorch 2.11 on H100 and H200 (data/measurements, first draw: 151 rows, 16 %; the
/// second: 31 rows, 17 %). Maxima in bf16 take up to twice as long.
/// `shape`: rows are the results, cols the elements that each sums.
double column_sum_latency_us(const RowShape& shape, double bytes, const Gpu& gpu);

}  // namespace perfmodel::kernels
