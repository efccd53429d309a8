#pragma once

#include "perfmodel/predictors/kernel.hpp"

/// One function per kernel family, called from `builtin_kernel_models.cpp`. The models are
/// immutable objects that live as long as the program.
namespace perfmodel::kernels {

/// The model of a class without settings.
template <class Model>
const KernelModel& the_only() {
  static const Model model;
  return model;
}

const KernelModel& roofline_model();
const KernelModel& gemm_model();
const KernelModel& convolution_model();
const KernelModel& embedding_forward_model();
const KernelModel& embedding_backward_model();
const KernelModel& elementwise_model();
const KernelModel& pooling_model();
const KernelModel& index_model();
const KernelModel& concat_model();
const KernelModel& optimizer_model();
const KernelModel& set_model();
const KernelModel& dropout_model();
const KernelModel& transpose_model();
const KernelModel& interaction_model();
const KernelModel& reduction_model();
const KernelModel& softmax_model();
const KernelModel& norm_model();
const KernelModel& sort_model();
const KernelModel& attention_model();
const KernelModel& grouped_gemm_model();
const KernelModel& experts_model();
const KernelModel& linear_attention_model();
const KernelModel& recurrent_model();
const KernelModel& copy_model();
const KernelModel& collective_model();
const KernelModel& part_model();
const KernelModel& small_model();
const KernelModel& quantize_model();

}  // namespace perfmodel::kernels
