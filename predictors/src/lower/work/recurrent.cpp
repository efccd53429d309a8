#include "price/kernel_work.hpp"

/// One layer: g gates (plain 1, LSTM 4, GRU 3), hidden size H, batch B, T steps; x = B T H
/// elements, W = g H H, s bytes each. The input's product is not included, so the input is x
/// elements.
///
///                      FLOP           read                  written
///   forward            2 g H H B T    (W + x) s             (1 + g) x s       output, saved gates
///   backward data      2 g H H B T    (W + (1 + g) x) s     (1 + g) x s       gradient, saved
///   gates backward weights   2 g H H B T    (1 + g) x s           W s backward           4 g H H B
///   T    both of the above
///
/// Each tensor counts once: whether the weights are read again at every step is the model's
/// business. The pointwise part's FLOP are not counted.
///
/// Pointwise part of one step (ATen's fused cells), n = B H, one pass over
///
///                  read                                            written
///   LSTM forward   2 x 4 gates, c:              9 n                h, c, saved gates:    6 n
///   LSTM backward  2 gradients, c twice, saved: 8 n                gates, c:             5 n
///   GRU forward    2 x 3 gates, h:              7 n                h, saved:             6 n
///   GRU backward   gradient, saved:             6 n                2 x 3 gates, h:       7 n
///   plain forward  2 products:                  2 n                h:                    1 n
///   plain backward gradient, h:                 2 n                gradient:             1 n
///
/// with 20 FLOP (sigmoid or tanh) per element of the largest output, as the op rules count.
namespace perfmodel {

double gates_of(RecurrentShape::Cell cell) {
  switch (cell) {
    case RecurrentShape::Cell::kLstm: return 4;
    case RecurrentShape::Cell::kGru: return 3;
    case RecurrentShape::Cell::kPlain: return 1;
  }
  return 1;
}

KernelWork recurrent_work(const RecurrentShape& shape, DType dtype) {
  const double g = gates_of(shape.cell), h = static_cast<double>(shape.hidden);
  const double size = size_in_bytes(dtype);
  const double layers = static_cast<double>(shape.layers);
  const double x =
      layers * static_cast<double>(shape.batch) * static_cast<double>(shape.timesteps) * h;
  const double weights = layers * g * h * h * size, states = x * size, gates = g * x * size;
  double products = 1, read = 0, written = 0;
  const auto add = [&](double r, double w) {
    read += r;
    written += w;
  };
  const bool whole = shape.pass == RecurrentShape::Pass::kBackward;
  if (shape.pass == RecurrentShape::Pass::kForward) add(weights + states, states + gates);
  if (whole || shape.pass == RecurrentShape::Pass::kBackwardData) {
    add(weights + states + gates, states + gates);
  }
  if (whole || shape.pass == RecurrentShape::Pass::kBackwardWeights) add(states + gates, weights);
  if (whole) products = 2;
  return {.family = KernelFamily::kRecurrent,
          .dtype = dtype,
          .flop = {products * 2 * g * h * x},
          .bytes_read = {read},
          .bytes_written = {written},
          .shape = shape};
}

KernelWork recurrent_cell_work(RecurrentShape::Cell cell, std::int64_t batch, std::int64_t hidden,
                               RowPass pass, DType dtype) {
  struct Tensors {
    double read, written, largest;
  };
  const bool forward = pass == RowPass::kForward;
  Tensors t{};
  switch (cell) {
    case RecurrentShape::Cell::kLstm: t = forward ? Tensors{9, 6, 4} : Tensors{8, 5, 4}; break;
    case RecurrentShape::Cell::kGru: t = forward ? Tensors{7, 6, 5} : Tensors{6, 7, 3}; break;
    case RecurrentShape::Cell::kPlain: t = {2, 1, 1}; break;
  }
  const double n = static_cast<double>(batch) * static_cast<double>(hidden);
  const double size = size_in_bytes(dtype);
  return {.family = KernelFamily::kElementwise,
          .dtype = dtype,
          .flop = {20 * t.largest * n},
          .bytes_read = {t.read * n * size},
          .bytes_written = {t.written * n * size},
          .shape = {}};
}

}  // namespace perfmodel
