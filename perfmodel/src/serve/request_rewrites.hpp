#pragma once

#include <simdjson.h>

#include <string>
#include <vector>

#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel::serve {

/// Reads rewrites with their values, in the order of the keys: {"precision": "bf16", "batch": 64,
/// "fuse_norms": true}. Names are the flags of `perfpredict rewrite`; false leaves one out. A value
/// that does not fit makes a `problem`; the error is broken JSON.
simdjson::error_code read_rewrites(simdjson::ondemand::value& value,
                                   std::vector<NamedRewrite>& rewrites, std::string& problem);

}  // namespace perfmodel::serve
