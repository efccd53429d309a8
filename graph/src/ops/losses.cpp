#include "catalogue.hpp"

namespace perfmodel {

std::span<const Op> loss_ops() {
  using enum OpKind;
  using enum AutocastPolicy;
  static constexpr Op kOps[] = {
      {"aten::_ctc_loss",
       kLoss,
       {.price = "ctc.forward",
        .size = "ctc_loss",
        .keeps_inputs = {0, 1, 2, 3},
        .keeps_results = {0, 1}}},
      {"aten::_ctc_loss_backward", kLoss, {.price = "ctc.backward", .size = "ctc_loss_backward"}},
      {"aten::nll_loss_forward",
       kLoss,
       {.price = "loss.nll",
        .size = "nll_loss",
        .retarget = "nll_loss_forward",
        .keeps_inputs = {0, 1, 2},
        .keeps_results = {1}}},
      {"aten::nll_loss_backward", kLoss, {.price = "loss.nll", .size = "like_second"}},
      {"aten::nll_loss2d_forward",
       kLoss,
       {.price = "loss.nll", .size = "nll_loss", .keeps_inputs = {0, 1, 2}, .keeps_results = {1}}},
      {"aten::nll_loss2d_backward", kLoss, {.price = "loss.nll", .size = "like_second"}},
      {"aten::multi_margin_loss",
       kLoss,
       {.price = "loss.nll", .autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::multilabel_margin_loss_forward", kLoss, {.price = "loss.nll"}},
      // Triton kernels of Liger: the gradient takes the place of the logits.
      {"liger::cross_entropy", kLoss, {.price = "loss.in_place_cross_entropy"}},
      {"liger::scale_gradient_", kPointwise, {.flop = 1, .fusible = false}},
      {"torchvision::nms", kDetection, {.price = "detection.nms"}},
      {"torchvision::roi_align", kDetection, {.price = "detection.roi_align"}},
      {"torchvision::_roi_align_backward", kDetection, {.price = "detection.roi_align"}},
      {"aten::binary_cross_entropy_with_logits",
       kComposite,
       {.size = "pointwise_loss",
        .autocast = kFp32,
        .autocast_cpu = kFp32,
        .data = {1, 2},
        .keeps_inputs = {0, 1, 2, 3}}},
      {"aten::l1_loss",
       kComposite,
       {.size = "pointwise_loss", .autocast = kFp32, .autocast_cpu = kFp32, .data = {0, 1}}},
      {"aten::kl_div",
       kComposite,
       {.size = "pointwise_loss", .autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::ctc_loss",
       kComposite,
       {.size = "ctc_loss", .autocast_cpu = kFp32, .data = {1, 2, 3}}},
      {"aten::_cudnn_ctc_loss", kComposite, {.size = "ctc_loss", .keeps_results = {0, 1}}},
      {"aten::cosine_similarity", kComposite, {.autocast = kFp32}},
      {"aten::poisson_nll_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::cosine_embedding_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::nll_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::nll_loss2d", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::hinge_embedding_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::margin_ranking_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::multilabel_margin_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::triplet_margin_loss", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
      {"aten::cross_entropy_loss",
       kComposite,
       {.autocast_cpu = kFp32, .weights = {2}, .data = {1}}},
      {"aten::nll_loss_nd", kComposite, {.weights = {2}, .data = {1}}},
  };
  return kOps;
}

}  // namespace perfmodel
