#pragma once

#include "rewrite_options.hpp"

namespace perfmodel::cli {

// `perfpredict rewrite`: one file per group of flags.

RewriteOption precision_option();

}  // namespace perfmodel::cli
