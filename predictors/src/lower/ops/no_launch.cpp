#include "families.hpp"
#include "rule_support.hpp"

/// Ops that never launch anything themselves: views, allocation, queries, bookkeeping. Composite
/// ops (aten::matmul, aten::batch_norm, ...) are not listed: they have no rule, their children do.
/// Those composites that often have nothing to do, and then no children, are.
namespace perfmodel::ops {
namespace {

bool lower_nothing(const OpView&, const Gpu&, std::vector<KernelWork>&) { return true; }

constexpr std::string_view kViews[] = {
    "aten::view",
    "aten::view_as",
    "aten::as_strided",
    "aten::as_strided_",
    "aten::t",
    "aten::t_",
    "aten::transpose",
    "aten::transpose_",
    "aten::swapaxes",
    "aten::swapdims",
    "aten::numpy_T",
    "aten::adjoint",
    "aten::mT",
    "aten::mH",
    "aten::expand",
    "aten::expand_as",
    "aten::broadcast_to",
    "aten::broadcast_tensors",
    "aten::slice",
    "aten::select",
    "aten::narrow",
    "aten::unsqueeze",
    "aten::unsqueeze_",
    "aten::squeeze",
    "aten::squeeze_",
    "aten::_reshape_alias",
    "aten::_unsafe_view",
    "aten::permute",
    "aten::movedim",
    "aten::moveaxis",
    "aten::detach",
    "aten::detach_",
    "detach",
    "detach_",
    "aten::alias",
    "aten::unfold",
    "aten::diagonal",
    "aten::unbind",
    "aten::split",
    "aten::split_with_sizes",
    "aten::chunk",
    "aten::tensor_split",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
    "aten::unsafe_chunk",
    "aten::unflatten",
    "aten::view_as_real",
    "aten::view_as_complex",
    "aten::real",
    "aten::_conj",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::_neg_view",
    "aten::lift_fresh",
    "aten::lift",
    "aten::_fw_primal",
    "aten::_values",
    "aten::_indices",
    "aten::values",
    "aten::indices",
    "aten::unflatten_dense_tensors",
    "aten::crow_indices",
    "aten::col_indices",
    "aten::_nested_view_from_buffer",
};

constexpr std::string_view kAllocation[] = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::_empty_affine_quantized",
    "aten::resize_",
    "aten::resize_as_",
    "aten::resize",
    "aten::set_",
    "aten::set_data",
    "aten::_pin_memory",
    "aten::pin_memory",
    "aten::is_pinned",
    "aten::_resize_output_",
    "aten::sparse_resize_and_clear_",
    "aten::sparse_resize_",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::_sparse_coo_tensor_unsafe",
    "aten::_sparse_coo_tensor_with_dims",
    "aten::_cudnn_init_dropout_state",
};

constexpr std::string_view kQueries[] = {
    "aten::result_type",
    "aten::record_stream",
    "aten::item",
    "aten::size",
    "aten::stride",
    "aten::sym_size",
    "aten::sym_stride",
    "aten::sym_numel",
    "aten::sym_storage_offset",
    "aten::numel",
    "aten::dim",
    "aten::is_nonzero",
    "aten::is_floating_point",
    "aten::is_complex",
    "aten::is_same_size",
    "aten::is_coalesced",
    "aten::_is_zerotensor",
    "aten::is_sparse",
    "aten::sparse_dim",
    "aten::dense_dim",
    "aten::_nnz",
    "aten::_coalesced_",
    "aten::_dimI",
    "aten::_dimV",
    "aten::can_cast",
    "aten::promote_types",
    "aten::requires_grad_",
    "aten::retain_grad",
    "aten::output_nr",
    "aten::is_leaf",
    "aten::_version",
    "aten::data",
    "aten::_has_compatible_shallow_copy_type",
    "aten::_has_same_storage_numel",
    "aten::_shape_as_tensor",
    "aten::_use_cudnn_ctc_loss",
    "aten::_use_cudnn_rnn_flatten_weight",
    "aten::cudnn_is_acceptable",
    "aten::_fused_sdp_choice",
    "aten::_nested_tensor_size",
    "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
    "aten::_assert_scalar",
    "aten::_functional_assert_async",
    "aten::_debug_has_internal_overlap",
};

/// Nothing to convert, or evaluation mode.
constexpr std::string_view kIdentities[] = {
    "aten::to",
    "aten::_to_copy",
    "aten::type_as",
    "aten::cpu",
    "aten::cuda",
    "aten::float",
    "aten::_autocast_to_full_precision",
    "aten::_autocast_to_reduced_precision",
    "aten::dropout",
    "aten::dropout_",
    "aten::feature_dropout",
    "aten::alpha_dropout",
};

/// Communication and autograd wrappers: the collective is launched by record_param_comms, the
/// kernels of an autograd node by its aten children.
constexpr std::string_view kBookkeeping[] = {
    "torch::autograd::AccumulateGrad",
    "torch::autograd::CopySlices",
    "torch::autograd::CopyBackwards",
    "torch::autograd::GraphRoot",
    "torch::autograd::Error",
    "c10d::allreduce_",
    "c10d::allreduce_coalesced_",
    "c10d::alltoall_base_",
    "c10d::alltoall_",
    "c10d::broadcast_",
    "c10d::allgather_",
    "c10d::_allgather_base_",
    "c10d::allgather_coalesced_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::reduce_scatter_",
    "c10d::_reduce_scatter_base_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "c10d::reduce_",
    "c10d::gather_",
    "c10d::scatter_",
    "c10d::send",
    "c10d::recv_",
    "c10d::recv_any_source_",
    "c10d::barrier",
    "c10d::monitored_barrier_",
    "c10d_functional::wait_tensor",
    "_c10d_functional::wait_tensor",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_reduce_",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::all_to_all_single",
    "CompiledFunction",
    "CompiledFunctionBackward",
    "All2All_Pooled_Req",
    "All2All_Pooled_Wait",
    "All2All_Pooled_ReqBackward",
    "All2All_Pooled_WaitBackward",
};

/// Regions that touch tensors only through their children.
constexpr std::string_view kPrefixes[] = {
    "nccl:",
    "gloo:",
    "ucc:",
    "mpi:",
    "rccl:",                                // labels below record_param_comms
    "autograd::engine::evaluate_function",  //
    "torch.distributed.ddp.reducer::",
    "torch::distributed::reducer::",
    "TorchDynamo",
    "Torch-Compiled Region",
    "AOTDispatcher",
    "Pregraph bytecode",
    "## ",
    "[pytorch|",
    "ProfilerStep#",
    "Optimizer.",
    "DistributedDataParallel.",
    "FullyShardedDataParallel.",
    "enumerate(DataLoader)",
    "nn.Module:",
    "FSDP::",
    "DataParallel.",
};

}  // namespace

void add_no_launch(OpRuleRegistry& registry) {
  std::vector<std::string> names;
  for (auto list :
       {std::span<const std::string_view>(kViews), std::span<const std::string_view>(kAllocation),
        std::span<const std::string_view>(kQueries), std::span<const std::string_view>(kIdentities),
        std::span<const std::string_view>(kBookkeeping)}) {
    names.insert(names.end(), list.begin(), list.end());
  }
  registry.add(std::move(names), make_rule(lower_nothing));
  for (std::string_view prefix : kPrefixes) {
    registry.add_prefix(std::string(prefix), make_rule(lower_nothing));
  }
  registry.set_autograd(make_rule(lower_nothing));
}

}  // namespace perfmodel::ops
