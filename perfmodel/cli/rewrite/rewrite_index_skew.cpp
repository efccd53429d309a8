#include <fmt/format.h>

#include <charconv>

#include "perfmodel/graph/rewrites/resize.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

Result<Rewrite> parse_index_skew(const std::string& text) {
  double exponent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::kFormat, fmt::format("expected a number, found \"{}\"", text));
  }
  return [exponent](const ExecutionGraph& graph) { return set_index_skew(graph, exponent); };
}

}  // namespace

RewriteOption index_skew_option() {
  return {.flag = "--index-skew",
          .value = "S",
          .help = "Indices of embedding tables follow Zipf's law with this exponent (0: uniform)",
          .for_build = true,
          .parse = parse_index_skew};
}

}  // namespace perfmodel::cli
