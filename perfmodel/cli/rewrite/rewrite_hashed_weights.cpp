#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

using HashScheme = HashedWeightOptions::Scheme;

constexpr std::pair<std::string_view, HashScheme> kHashSchemes[] = {
    {"roast", HashScheme::kRoast},
    {"hashednet", HashScheme::kHashedNet},
    {"robe", HashScheme::kRobe},
};

Unexpected refuse_hash_detail(std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kFormat, fmt::format("expected {}, found {}", expected, found));
}

Result<void> read_detail(std::string_view key, std::string_view value,
                         HashedWeightOptions& options) {
  if (key == "scheme") {
    for (const auto& [name, scheme] : kHashSchemes) {
      if (value != name) continue;
      options.scheme = scheme;
      return {};
    }
    return refuse_hash_detail("the scheme roast, hashednet or robe", value);
  }
  const char* end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, options.compression);
  if (error == std::errc() && stopped == end && options.compression >= 1) return {};
  return refuse_hash_detail("a compression of at least 1", value);
}

// "aten::linear:compression=100:scheme=roast": details stand last, names of ops hold ':' too.
Result<HashedWeightOptions> parse_hashed_weights(std::string_view text) {
  HashedWeightOptions options;
  for (;;) {
    const std::size_t colon = text.rfind(':');
    const std::size_t equals = text.rfind('=');
    if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon)
      break;
    const std::string_view key = text.substr(colon + 1, equals - colon - 1);
    if (key != "scheme" && key != "compression") break;
    if (auto good = read_detail(key, text.substr(equals + 1), options); !good) {
      return Unexpected{good.error()};
    }
    text = text.substr(0, colon);
  }
  if (text.empty()) return refuse_hash_detail("a pattern of ops or labels", "nothing");
  options.pattern = text;
  return options;
}

}  // namespace

RewriteOption hash_weights_option() {
  return {
      .flag = "--hash-weights",
      .value = "PATTERN",
      .help =
          "Weights of layers and tables at or below ops or labels of this name ('*' stands for "
          "any text) are looked up by a hash in a smaller array; comes behind rewrites of sizes "
          "and precision",
      .for_build = true,
      .parse = [](const std::string& text) -> Result<Rewrite> {
        auto options = parse_hashed_weights(text);
        if (!options) return Unexpected{options.error()};
        return [options = std::move(*options)](const ExecutionGraph& graph) {
          return rewrite_hashed_weights(graph, options);
        };
      },
      .details = {
          {"--compression", "X", "Elements of a hashed weight over those of its array (100)"},
          {"--scheme", "roast|hashednet|robe",
           "What --hash-weights looks up at a time: a tile (roast), an element "
           "(hashednet), a chunk of a table's row, tables alone (robe)"}}};
}

}  // namespace perfmodel::cli
