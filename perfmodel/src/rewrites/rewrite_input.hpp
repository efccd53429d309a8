#pragma once

#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/captured.hpp"
#include "perfmodel/graph/detail/retarget_options.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Applies the rewrites that a question about a graph begins with. A rewrite that changes nothing
/// is a warning of the graph. Fails as `apply_rewrites` does; the error has the graph's file.
Result<ExecutionGraph> rewrite_input(const ExecutionGraph& graph,
                                     std::span<const NamedRewrite> rewrites);

/// Gives a captured graph the libraries of the GPU's vendor before it is rewritten, unless one of
/// the rewrites is `--retarget`; another graph stays as it is. Errors: as `retarget` has them.
Result<void> retarget_for(const Gpu& gpu, ExecutionGraph& graph,
                          std::span<const NamedRewrite> rewrites = {});
RetargetOptions::Vendor vendor_of(const Gpu& gpu);

/// The flags of the rewrites, as answers show them.
std::vector<std::string> rewrite_names(std::span<const NamedRewrite> rewrites);
/// "--precision bf16 --batch 64"
std::string rewrite_line(std::span<const NamedRewrite> rewrites);

}  // namespace perfmodel
