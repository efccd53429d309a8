#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/rewrites/resize.hpp"
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

// "545:0+557:0".
Result<std::vector<BatchInput>> parse_inputs(std::string_view text) {
  std::vector<BatchInput> inputs;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t colon = one.find(':');
    BatchInput input;
    const auto number = [](std::string_view digits, auto& value) {
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return error == std::errc() && end == digits.data() + digits.size() && value >= 0;
    };
    if (colon == std::string_view::npos || !number(one.substr(0, colon), input.tensor) ||
        !number(one.substr(colon + 1), input.dim)) {
      return fail(
          ErrorCode::kFormat,
          fmt::format("expected inputs such as 545:0+557:0 behind the @, found \"{}\"", one));
    }
    inputs.push_back(input);
  }
  return inputs;
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
          .value = "B|OLD=NEW[@ID:DIM+...]",
          .help =
              "Another number of samples per step. Where the inputs do not tell the present one: "
              "OLD names it, or @ the ids of the tensors of which dimension DIM is the batch",
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const std::size_t at = std::min(text.find('@'), text.size());
            const auto sizes = parse_sizes(text.substr(0, at));
            if (!sizes) return Unexpected{sizes.error()};
            BatchSizeOptions options{.batch = sizes->wanted, .current = sizes->current};
            if (at < text.size()) {
              auto inputs = parse_inputs(std::string_view(text).substr(at + 1));
              if (!inputs) return Unexpected{inputs.error()};
              options.inputs = std::move(*inputs);
            }
            return [options = std::move(options)](const ExecutionGraph& graph) {
              return set_batch_size(graph, options);
            };
          },
          .of_ops_alone = true};
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
