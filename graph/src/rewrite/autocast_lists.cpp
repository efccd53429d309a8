#include "autocast_lists.hpp"

#include <initializer_list>
#include <unordered_map>

namespace perfmodel {
namespace {

using Policies = std::unordered_map<std::string_view, AutocastPolicy>;

void add(Policies& policies, AutocastPolicy policy, std::initializer_list<const char*> ops) {
  for (const char* op : ops) policies.emplace(op, policy);
}

// aten/src/ATen/autocast_mode.h of PyTorch 2 (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
// AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE); cross_entropy_loss is in none of them, its
// parts are. Recurrent library calls have a kernel of their own that casts all tensors.
Policies gpu_policies() {
  Policies policies;
  add(policies, AutocastPolicy::kLower,
      {"aten::_convolution",
       "aten::conv1d",
       "aten::conv2d",
       "aten::conv3d",
       "aten::conv_tbc",
       "aten::conv_transpose1d",
       "aten::conv_transpose2d",
       "aten::conv_transpose3d",
       "aten::convolution",
       "aten::cudnn_convolution",
       "aten::cudnn_convolution_transpose",
       "aten::prelu",
       "aten::addmm",
       "aten::addmv",
       "aten::addr",
       "aten::matmul",
       "aten::einsum",
       "aten::mm",
       "aten::mv",
       "aten::linalg_vecdot",
       "aten::linear",
       "aten::addbmm",
       "aten::baddbmm",
       "aten::bmm",
       "aten::chain_matmul",
       "aten::linalg_multi_dot",
       "aten::_thnn_fused_lstm_cell",
       "aten::_thnn_fused_gru_cell",
       "aten::lstm_cell",
       "aten::gru_cell",
       "aten::rnn_tanh_cell",
       "aten::rnn_relu_cell",
       "aten::_scaled_dot_product_flash_attention",
       "aten::scaled_dot_product_attention",
       "aten::_cudnn_rnn",
       "aten::miopen_rnn"});
  add(policies, AutocastPolicy::kFp32,
      {"aten::acos",
       "aten::asin",
       "aten::cosh",
       "aten::erfinv",
       "aten::exp",
       "aten::expm1",
       "aten::log",
       "aten::log10",
       "aten::log2",
       "aten::log1p",
       "aten::reciprocal",
       "aten::rsqrt",
       "aten::sinh",
       "aten::tan",
       "aten::pow",
       "aten::softplus",
       "aten::layer_norm",
       "aten::native_layer_norm",
       "aten::group_norm",
       "aten::frobenius_norm",
       "aten::nuclear_norm",
       "aten::cosine_similarity",
       "aten::poisson_nll_loss",
       "aten::cosine_embedding_loss",
       "aten::nll_loss",
       "aten::nll_loss2d",
       "aten::hinge_embedding_loss",
       "aten::kl_div",
       "aten::l1_loss",
       "aten::smooth_l1_loss",
       "aten::huber_loss",
       "aten::mse_loss",
       "aten::margin_ranking_loss",
       "aten::multilabel_margin_loss",
       "aten::soft_margin_loss",
       "aten::triplet_margin_loss",
       "aten::multi_margin_loss",
       "aten::binary_cross_entropy_with_logits",
       "aten::dist",
       "aten::pdist",
       "aten::cdist",
       "aten::renorm",
       "aten::logsumexp"});
  add(policies, AutocastPolicy::kFp32Type,
      {"aten::prod", "aten::softmax", "aten::log_softmax", "aten::cumprod", "aten::cumsum",
       "aten::linalg_vector_norm", "aten::linalg_matrix_norm", "aten::sum"});
  add(policies, AutocastPolicy::kPromote,
      {"aten::addcdiv", "aten::addcmul", "aten::atan2", "aten::bilinear", "aten::cross",
       "aten::dot", "aten::vdot", "aten::grid_sampler", "aten::index_put", "aten::tensordot",
       "aten::scatter_add"});
  add(policies, AutocastPolicy::kBanned, {"aten::binary_cross_entropy"});
  return policies;
}

// PyTorch 1.13, those that training graphs hold.
Policies cpu_policies() {
  Policies policies;
  add(policies, AutocastPolicy::kLower,
      {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv_tbc", "aten::conv_transpose1d",
       "aten::conv_transpose2d", "aten::conv_transpose3d", "aten::bmm", "aten::mm", "aten::baddbmm",
       "aten::addmm", "aten::addbmm", "aten::linear", "aten::matmul"});
  add(policies, AutocastPolicy::kFp32,
      {"aten::avg_pool3d",
       "aten::binary_cross_entropy",
       "aten::binary_cross_entropy_with_logits",
       "aten::grid_sampler",
       "aten::prod",
       "aten::mse_loss",
       "aten::cosine_embedding_loss",
       "aten::nll_loss",
       "aten::nll_loss2d",
       "aten::hinge_embedding_loss",
       "aten::poisson_nll_loss",
       "aten::smooth_l1_loss",
       "aten::cross_entropy_loss",
       "aten::l1_loss",
       "aten::huber_loss",
       "aten::margin_ranking_loss",
       "aten::soft_margin_loss",
       "aten::triplet_margin_loss",
       "aten::multi_margin_loss",
       "aten::ctc_loss",
       "aten::kl_div",
       "aten::multilabel_margin_loss",
       "aten::adaptive_avg_pool3d",
       "aten::cdist",
       "aten::trace"});
  add(policies, AutocastPolicy::kPromote, {"aten::stack", "aten::cat", "aten::index_copy"});
  return policies;
}

}  // namespace

AutocastPolicy autocast_policy(std::string_view op, bool on_gpu) {
  static const Policies kGpu = gpu_policies(), kCpu = cpu_policies();
  const Policies& policies = on_gpu ? kGpu : kCpu;
  const auto known = policies.find(op);
  return known == policies.end() ? AutocastPolicy::kNone : known->second;
}

}  // namespace perfmodel
