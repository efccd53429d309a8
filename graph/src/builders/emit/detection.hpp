#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Ops of object detectors on a GPU, torchvision's among them.

/// `x[rows]` of a [N] or [N, D] tensor; a row that is picked twice gets both gradients.
TensorRef pick_rows(GraphBuilder& graph, TensorRef x, TensorRef rows, std::int64_t sequence = -1);
TensorRef pick_rows(AutogradTape& tape, TensorRef x, TensorRef rows);

/// F.binary_cross_entropy_with_logits, mean over all elements; `target` as `scores`.
TensorRef binary_cross_entropy_with_scores(AutogradTape& tape, TensorRef scores, TensorRef target);
/// F.smooth_l1_loss(reduction="sum").
TensorRef smooth_l1_sum(AutogradTape& tape, TensorRef prediction, TensorRef target, double beta);

/// torchvision.ops.nms: boxes [N, 4], scores [N] -> the rows of `kept` boxes. How many are kept
/// depends on data: it is given. The host waits for the device.
TensorRef non_maximum_suppression(GraphBuilder& graph, TensorRef boxes, TensorRef scores,
                                  double overlap, std::int64_t kept);

/// torchvision.ops.roi_align: features [B, C, H, W], regions [R, 5] -> [R, C, size, size], with
/// `samples` x `samples` points per bin.
struct RoiAlign {
  std::int64_t size = 7, samples = 2;
  double scale = 1;  ///< features over image
};
TensorRef roi_align(AutogradTape& tape, TensorRef features, TensorRef regions,
                    const RoiAlign& align);

}  // namespace perfmodel
