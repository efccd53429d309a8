#include <fmt/format.h>

#include <charconv>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

// A number is layers per segment, anything else the name of a region.
Result<Rewrite> parse_checkpointing(const std::string& text) {
  CheckpointOptions options;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.every);
  const bool is_number = end == text.data() + text.size() && !text.empty();
  if (text.empty() || (is_number && (error != std::errc() || options.every < 0))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected layers per segment (0: the square root of all), or a part of "
                            "the name of regions, found \"{}\"",
                            text));
  }
  if (!is_number) options = {.label = text};
  return [options](const ExecutionGraph& graph) { return rewrite_checkpointing(graph, options); };
}

}  // namespace

RewriteOption checkpoint_option() {
  return {.flag = "--checkpoint",
          .value = "EVERY|LABEL",
          .help =
              "torch.utils.checkpoint around every so many repeated layers (0: the square root of "
              "their number), or around regions whose name contains LABEL",
          .for_build = true,
          .parse = parse_checkpointing};
}

}  // namespace perfmodel::cli
