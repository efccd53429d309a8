#include "catalogue.hpp"

namespace perfmodel {

std::span<const Op> query_ops() {
  using enum OpKind;
  static constexpr Op kOps[] = {
      {"aten::result_type", kQuery},
      {"aten::record_stream", kQuery},
      {"aten::item", kQuery},
      {"aten::size", kQuery},
      {"aten::stride", kQuery},
      {"aten::sym_size", kQuery},
      {"aten::sym_stride", kQuery},
      {"aten::sym_numel", kQuery},
      {"aten::sym_storage_offset", kQuery},
      {"aten::numel", kQuery},
      {"aten::dim", kQuery},
      {"aten::is_nonzero", kQuery},
      {"aten::is_floating_point", kQuery},
      {"aten::is_complex", kQuery},
      {"aten::is_same_size", kQuery},
      {"aten::is_coalesced", kQuery},
      {"aten::_is_zerotensor", kQuery},
      {"aten::is_sparse", kQuery},
      {"aten::sparse_dim", kQuery},
      {"aten::dense_dim", kQuery},
      {"aten::_nnz", kQuery, {.size = "non_zeros"}},
      {"aten::_coalesced_", kQuery},
      {"aten::_dimI", kQuery},
      {"aten::_dimV", kQuery},
      {"aten::can_cast", kQuery},
      {"aten::promote_types", kQuery},
      {"aten::requires_grad_", kQuery},
      {"aten::retain_grad", kQuery},
      {"aten::output_nr", kQuery},
      {"aten::is_leaf", kQuery},
      {"aten::_version", kQuery},
      {"aten::data", kQuery},
      {"aten::_has_compatible_shallow_copy_type", kQuery},
      {"aten::_has_same_storage_numel", kQuery},
      {"aten::_shape_as_tensor", kQuery},
      {"aten::_use_cudnn_ctc_loss", kQuery, {.size = "ctc_loss"}},
      {"aten::_use_cudnn_rnn_flatten_weight", kQuery},
      {"aten::cudnn_is_acceptable", kQuery},
      {"aten::_fused_sdp_choice", kQuery},
      {"aten::_nested_tensor_size", kQuery},
      {"aten::_assert_tensor_metadata", kQuery},
      {"aten::sym_constrain_range", kQuery},
      {"aten::sym_constrain_range_for_size", kQuery},
      {"aten::_assert_scalar", kQuery},
      {"aten::_functional_assert_async", kQuery},
      {"aten::_debug_has_internal_overlap", kQuery},
  };
  return kOps;
}

}  // namespace perfmodel
