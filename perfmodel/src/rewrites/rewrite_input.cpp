#include "rewrite_input.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/contains.hpp"
#include "base/decimal_number.hpp"
#include "model_batch.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"

namespace perfmodel {

std::int64_t asked_batch(std::span<const NamedRewrite> rewrites) {
  constexpr std::string_view kBatch = "--batch ";
  std::int64_t batch = 0;
  for (const NamedRewrite& one : rewrites) {
    if (!one.name.starts_with(kBatch)) continue;
    // "OLD=NEW" changes the graph as it is, so that none is asked for.
    if (!read_decimal(std::string_view(one.name).substr(kBatch.size()), batch)) batch = 0;
  }
  return batch;
}

Result<ExecutionGraph> rewrite_model(const ExecutionGraph& graph,
                                     std::span<const NamedRewrite> rewrites) {
  const auto built = model_with_batch(graph, asked_batch(rewrites));
  if (built && !*built) return *built;
  return apply_rewrites(built ? **built : graph, rewrites);
}

Result<ExecutionGraph> rewrite_input(const ExecutionGraph& graph,
                                     std::span<const NamedRewrite> rewrites) {
  PERFMODEL_TRY_TO(check_rewrites(graph, rewrites));
  auto built = model_with_batch(graph, asked_batch(rewrites));
  if (built && !*built) return *built;
  ExecutionGraph made = built ? std::move(**built) : graph;
  for (const NamedRewrite& rewrite : rewrites) {
    auto next = apply_rewrites(made, {&rewrite, 1});
    if (!next) {
      next.error().file = graph.source;
      return next;
    }
    const bool is_built_so = built && rewrite.name.starts_with("--batch ");
    if (!rewrite.launching && !is_built_so && graph_difference(made, *next).none()) {
      add_once(next->warnings, rewrite.name + " changes nothing");
    }
    made = std::move(*next);
  }
  return made;
}

RetargetOptions::Vendor vendor_of(const Gpu& gpu) {
  return gpu.vendor == "amd" ? RetargetOptions::Vendor::kAmd : RetargetOptions::Vendor::kNvidia;
}

Result<void> retarget_for(const Gpu& gpu, ExecutionGraph& graph,
                          std::span<const NamedRewrite> rewrites) {
  const bool is_said = std::ranges::any_of(rewrites, [](const NamedRewrite& rewrite) {
    return rewrite.name.starts_with("--retarget ");
  });
  return is_said ? Result<void>() : retarget_captured(graph, vendor_of(gpu));
}

std::vector<std::string> rewrite_names(std::span<const NamedRewrite> rewrites) {
  std::vector<std::string> names;
  for (const NamedRewrite& rewrite : rewrites) names.push_back(rewrite.name);
  return names;
}

std::string rewrite_line(std::span<const NamedRewrite> rewrites) {
  return fmt::format("{}", fmt::join(rewrite_names(rewrites), " "));
}

}  // namespace perfmodel
