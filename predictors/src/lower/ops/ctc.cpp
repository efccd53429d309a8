#include "families.hpp"

/// PyTorch's own CTC loss. Forward: one kernel walks over the T steps and writes alpha [B, T, S'].
/// Backward: one walks back and makes a beta of the same size, one collects both into the gradient
/// [T, B, C], one clears everything after the end of each sample. Priced by their bytes: a lower
/// bound, as the steps of a walk wait for each other and few blocks run.
namespace perfmodel::ops {
namespace {

KernelWork walk(const Tensor& states, double read) {
  constexpr double kFlopPerState = 60;  // three exponentials and a logarithm
  return make_work(KernelFamily::kElementwise, states.dtype, read, bytes(states),
                   kFlopPerState * static_cast<double>(states.numel));
}

bool lower_ctc_forward(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* alpha = op.tensor_output(1);
  if (!alpha || !alpha->on_gpu()) return false;
  // One log-probability per state.
  kernels.push_back(walk(*alpha, bytes(*alpha)));
  return true;
}

/// _ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, loss, alpha, ...)
bool lower_ctc_backward(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* log_probabilities = op.tensor_input(1);
  const Tensor* alpha = op.tensor_input(6);
  if (!log_probabilities || !alpha || !alpha->on_gpu()) return false;
  kernels.push_back(walk(*alpha, bytes(*alpha)));
  const double gradient = bytes(*log_probabilities);
  const double elements = static_cast<double>(log_probabilities->numel + alpha->numel);
  constexpr double kFlopPerElement = 20;  // an exponential
  kernels.push_back(make_work(KernelFamily::kElementwise, alpha->dtype,
                              2 * bytes(*alpha) + gradient, gradient, kFlopPerElement * elements));
  constexpr double kLengths = 16;  // all that it touches where every sample is full
  kernels.push_back(make_work(KernelFamily::kElementwise, alpha->dtype, kLengths, 0, 0));
  return true;
}

}  // namespace

std::span<const NamedLower> ctc_rules() {
  static constexpr NamedLower kRules[] = {
      {"ctc.forward", lower_ctc_forward},
      {"ctc.backward", lower_ctc_backward},
  };
  return kRules;
}

}  // namespace perfmodel::ops
