#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// The `reduction` of losses.
inline constexpr std::int64_t kReduceMean = 1, kReduceSum = 2;

/// Mean over the batch.
TensorRef binary_cross_entropy(GraphBuilder& graph, TensorRef prediction, TensorRef target,
                               std::int64_t sequence);
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target);
TensorRef binary_cross_entropy_backward(GraphBuilder& graph, TensorRef gradient,
                                        TensorRef prediction, TensorRef target);

/// The same of sigmoid(logits), in one op.
TensorRef binary_cross_entropy_with_logits(AutogradTape& tape, TensorRef logits, TensorRef target);

/// nn.CrossEntropyLoss, mean over the batch: scores [N, C], and for every sample its class [N]
/// (whole numbers) or the probabilities of all classes [N, C]. With `label_smoothing` e, only for
/// classes: (1 - e) of the right class's loss, and e of the mean over all classes.
TensorRef cross_entropy(AutogradTape& tape, TensorRef scores, TensorRef target,
                        double label_smoothing = 0);

}  // namespace perfmodel
