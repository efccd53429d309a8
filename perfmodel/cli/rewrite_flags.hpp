#pragma once

#include "rewrite_option.hpp"

namespace perfmodel::cli {

// `perfpredict rewrite`: one file per group of flags.

RewriteOption batch_option();
RewriteOption sequence_option();
RewriteOption precision_option();
RewriteOption in_place_option();
RewriteOption recompute_option();
RewriteOption checkpoint_option();
RewriteOption offload_option();
RewriteOption grad_dtype_option();
RewriteOption optimizer_option();
RewriteOption data_parallel_option();
RewriteOption tensor_parallel_option();
RewriteOption retarget_option();
RewriteOption fuse_tables_option();
RewriteOption fuse_elementwise_option();
RewriteOption index_skew_option();
RewriteOption subgraph_option();
RewriteOption remove_option();
RewriteOption kernel_time_option();
RewriteOption scale_kernel_option();

}  // namespace perfmodel::cli
