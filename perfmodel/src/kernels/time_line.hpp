#pragma once

#include <optional>
#include <span>

#include "kernels/nccl_log.hpp"

namespace perfmodel {

/// The time of a collective by its bytes S, in six figures:
///
///   t = base + simple S / (S + simple_bytes) + fill min(S, fill_bytes) / fill_bytes + slope S
///
/// base: an empty buffer with NCCL's LL [us]. simple: what the slower protocols add, one half of it
/// at simple_bytes [us]. fill: the pipeline of chunks until fill_bytes are under way [us]. slope:
/// the links or NICs [us/B]. No figure is below 0, so t never falls.
struct TimeLine {
  double base = 0, simple = 0, simple_bytes = 0, fill = 0, fill_bytes = 0, slope = 0;
  double us(double bytes) const;
};

/// The line with the least Huber loss of relative errors (linear beyond 5 %): the two sizes from a
/// grid of octaves, the other figures by weighted least squares.
TimeLine fit_time_line(std::span<const MeasuredSize> sizes);

/// The line bent through all sizes, which are sorted: between two of them measured over fitted time
/// is straight in bytes, and beyond the first and the last it stays as it is there [us].
double bent_us(const TimeLine& line, std::span<const MeasuredSize> sizes, double bytes);

/// Mean |error| of a line in percent.
double mean_error_percent(const TimeLine& line, std::span<const MeasuredSize> sizes);

/// Mean |error| in percent of the other sizes if the line is fitted to every `stride`-th and bent
/// through them, mean over the starts; nothing if fewer than five would be left.
std::optional<double> held_out_percent(std::span<const MeasuredSize> sizes, std::size_t stride);

}  // namespace perfmodel
