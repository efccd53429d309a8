#pragma once

#include "rewrite_options.hpp"

namespace perfmodel::cli {

// `perfpredict rewrite`: one file per group of flags.

RewriteOption data_parallel_option();
RewriteOption optimizer_option();
RewriteOption retarget_option();

}  // namespace perfmodel::cli
