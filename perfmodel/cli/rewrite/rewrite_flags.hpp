#pragma once

#include "rewrite_option.hpp"

namespace perfmodel::cli {

// `perfpredict rewrite`: one file per group of flags.

inline constexpr const char* kCudaGraphsHelp =
    "The host launches each stretch of the step that does not wait for the device as one captured "
    "graph";
inline constexpr const char* kCompiledHelp =
    "The host does nothing but launch kernels within such stretches: the least that compiled code "
    "does";

RewriteOption batch_option();
RewriteOption sequence_option();
RewriteOption precision_option();
RewriteOption channels_last_option();
RewriteOption in_place_option();
RewriteOption recompute_option();
RewriteOption checkpoint_option();
RewriteOption offload_option();
RewriteOption accumulate_option();
RewriteOption grad_dtype_option();
RewriteOption optimizer_option();
RewriteOption data_parallel_option();
RewriteOption tensor_parallel_option();
RewriteOption retarget_option();
RewriteOption fuse_tables_option();
RewriteOption fuse_elementwise_option();
RewriteOption fuse_option();
RewriteOption hash_weights_option();
RewriteOption lstm_option();
RewriteOption cuda_graphs_option();
RewriteOption compiled_option();
RewriteOption index_skew_option();
RewriteOption subgraph_option();
RewriteOption remove_option();
RewriteOption kernel_time_option();
RewriteOption scale_kernel_option();

}  // namespace perfmodel::cli
