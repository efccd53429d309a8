#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// nn.CTCLoss, mean over the batch: log-probabilities [T, B, C], targets [B, S] on the model's
/// device, lengths [B] of both in host memory. PyTorch's own kernels: cuDNN's are only taken for
/// targets in host memory.
TensorRef ctc_loss(AutogradTape& tape, TensorRef log_probabilities, TensorRef targets,
                   TensorRef input_lengths, TensorRef target_lengths);

}  // namespace perfmodel
