#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <utility>

#include "perfmodel/graph/rewrites/batch_size.hpp"
#include "perfmodel/graph/rewrites/sequence_length.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

struct Sizes {
  std::int64_t current = 0, wanted = 0;
};

bool parse_size(std::string_view text, std::int64_t& size) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  return error == std::errc() && end == text.data() + text.size() && size > 0;
}

Result<Sizes> parse_sizes(const std::string& text) {
  Sizes sizes;
  const std::size_t equals = text.find('=');
  const bool named = equals != std::string::npos;
  const std::string_view all = text;
  if (!parse_size(named ? all.substr(equals + 1) : all, sizes.wanted) ||
      (named && !parse_size(all.substr(0, equals), sizes.current))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected a size of at least 1, or OLD=NEW, found {}", text));
  }
  return sizes;
}

}  // namespace

RewriteOption batch_option() {
  return {.flag = "--batch",
          .value = "B|OLD=NEW",
          .help =
              "Another number of samples per step; OLD names the present one where the inputs "
              "do not tell",
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const auto sizes = parse_sizes(text);
            if (!sizes) return Unexpected{sizes.error()};
            return [sizes = *sizes](const ExecutionGraph& graph) {
              return set_batch_size(graph, {.batch = sizes.wanted, .current = sizes.current});
            };
          }};
}

RewriteOption sequence_option() {
  return {.flag = "--sequence",
          .value = "S|OLD=NEW",
          .help = "Another number of tokens per sample",
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const auto sizes = parse_sizes(text);
            if (!sizes) return Unexpected{sizes.error()};
            return [sizes = *sizes](const ExecutionGraph& graph) {
              return set_sequence_length(graph, {.length = sizes.wanted, .current = sizes.current});
            };
          }};
}

}  // namespace perfmodel::cli
