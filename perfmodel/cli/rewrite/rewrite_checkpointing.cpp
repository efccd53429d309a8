#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

// A number is layers per segment, anything else the name of a region. "+" where a comma parts
// values, as in `whatif`.
Result<Rewrite> parse_checkpointing(const std::string& text) {
  CheckpointOptions options;
  constexpr std::string_view kMasks = ",masks", kPlusMasks = "+masks";
  std::string_view parts = text;
  options.keep_masks = parts.ends_with(kMasks) || parts.ends_with(kPlusMasks);
  if (options.keep_masks) parts.remove_suffix(kMasks.size());
  const char* const behind = parts.data() + parts.size();
  const auto [end, error] = std::from_chars(parts.data(), behind, options.every);
  const bool is_number = end == behind && !parts.empty();
  if (parts.empty() || (is_number && (error != std::errc() || options.every < 0))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected layers per segment (0: the square root of all), or a part of "
                            "the name of regions, and \",masks\" where masks are kept, found "
                            "\"{}\"",
                            text));
  }
  if (!is_number) {
    options.every = 1;
    options.label = parts;
  }
  return [options](const ExecutionGraph& graph) { return rewrite_checkpointing(graph, options); };
}

}  // namespace

RewriteOption checkpoint_option() {
  return {
      .flag = "--checkpoint",
      .value = "EVERY|LABEL[,masks]",
      .help =
          "torch.utils.checkpoint around every so many repeated layers (0: the square root of "
          "their number), or around regions whose name contains LABEL; masks: those of dropout are "
          "kept, not drawn again",
      .for_build = true,
      .parse = parse_checkpointing};
}

}  // namespace perfmodel::cli
