#include "price/kernel_work.hpp"

/// One step over n parameters; gradients and states have the parameters' type of s bytes. Tensors
/// read and written (n s each), FLOP per parameter:
///
///   SGD               2, 1,  4   parameter, gradient
///   SGD, momentum     3, 2,  4   and the momentum
///   Adagrad           3, 2, 10   and the sum of squares
///   row-wise Adagrad  2, 1, 10   one sum per row: not counted
///   Adam              4, 3, 15   and two moments
namespace perfmodel {

KernelWork optimizer_work(double parameters, OptimizerKind kind, DType dtype) {
  struct Step {
    double reads, writes, flop;
  };
  Step step{};
  switch (kind) {
    case OptimizerKind::kSgd: step = {2, 1, 4}; break;
    case OptimizerKind::kMomentum: step = {3, 2, 4}; break;
    case OptimizerKind::kAdagrad: step = {3, 2, 10}; break;
    case OptimizerKind::kRowWiseAdagrad: step = {2, 1, 10}; break;
    case OptimizerKind::kAdam: step = {4, 3, 15}; break;
  }
  const double tensor = parameters * size_in_bytes(dtype);
  return {.family = KernelFamily::kOptimizer,
          .dtype = dtype,
          .flop = {step.flop * parameters},
          .bytes_read = {step.reads * tensor},
          .bytes_written = {step.writes * tensor},
          .shape = {}};
}

}  // namespace perfmodel
