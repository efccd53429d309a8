#include "price/kernels/models.hpp"
#include "price/models/knowledge.hpp"

namespace perfmodel {

const KernelModels& KernelModels::heuristic() {
  static const KernelModels models = [] {
    KernelModels result;
    result.set(KernelFamily::kGemm, &kernels::gemm_model());
    result.set(KernelFamily::kConvolution, &kernels::convolution_model());
    result.set(KernelFamily::kEmbeddingForward, &kernels::embedding_forward_model());
    result.set(KernelFamily::kEmbeddingBackward, &kernels::embedding_backward_model());
    result.set(KernelFamily::kElementwise, &kernels::elementwise_model());
    result.set(KernelFamily::kReduction, &kernels::reduction_model());
    result.set(KernelFamily::kSoftmax, &kernels::softmax_model());
    result.set(KernelFamily::kNorm, &kernels::norm_model());
    result.set(KernelFamily::kPooling, &kernels::pooling_model());
    result.set(KernelFamily::kDropout, &kernels::dropout_model());
    result.set(KernelFamily::kTranspose, &kernels::transpose_model());
    result.set(KernelFamily::kIndex, &kernels::index_model());
    result.set(KernelFamily::kInteraction, &kernels::interaction_model());
    result.set(KernelFamily::kSort, &kernels::sort_model());
    result.set(KernelFamily::kConcat, &kernels::concat_model());
    result.set(KernelFamily::kOptimizer, &kernels::optimizer_model());
    result.set(KernelFamily::kAttention, &kernels::attention_model());
    result.set(KernelFamily::kGroupedGemm, &kernels::grouped_gemm_model());
    result.set(KernelFamily::kExperts, &kernels::experts_model());
    result.set(KernelFamily::kLinearAttention, &kernels::linear_attention_model());
    result.set(KernelFamily::kRecurrent, &kernels::recurrent_model());
    result.set(KernelFamily::kCopy, &kernels::copy_model());
    result.set(KernelFamily::kSet, &kernels::set_model());
    result.set(KernelFamily::kCollective, &kernels::collective_model());
    result.set(KernelFamily::kQuantize, &kernels::quantize_model());
    result.set(KernelFamily::kPart, &kernels::part_model());
    result.set(KernelFamily::kSmall, &kernels::small_model());
    return with_knowledge(result);
  }();
  return models;
}

const KernelModels& KernelModels::roofline() {
  static const KernelModels models = [] {
    KernelModels result;
    for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
      result.set(static_cast<KernelFamily>(i), &kernels::roofline_model());
    }
    result.set(KernelFamily::kPart, &kernels::part_model());
    return result;
  }();
  return models;
}

}  // namespace perfmodel
