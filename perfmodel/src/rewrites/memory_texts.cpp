#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/decimal_number.hpp"
#include "base/named_values.hpp"
#include "rewrite_texts.hpp"

namespace perfmodel {
namespace {

using Recomputed = RecomputeOptions::What;
constexpr Named<Recomputed> kRecomputations[] = {
    {"none", Recomputed::kNone},
    {"full", Recomputed::kFull},
    {"selective", Recomputed::kSelective},
    {"attention", Recomputed::kSelective},
    {"op", Recomputed::kOp},
    {"dropout", Recomputed::kDropout},
    {"scoring", Recomputed::kScoring},
};

using HashScheme = HashedWeightOptions::Scheme;
constexpr Named<HashScheme> kHashSchemes[] = {
    {"roast", HashScheme::kRoast},
    {"hashednet", HashScheme::kHashedNet},
    {"robe", HashScheme::kRobe},
};

// "gelu:12"
Result<Named<FirstLayers>> read_first_layers(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return Named<FirstLayers>{.name = text, .value = {}};
  const std::string_view number = text.substr(colon + 1);
  int count = 0;
  if (!read_decimal(number, count) || count < 1) {
    return fail(
        ErrorCode::kFormat,
        fmt::format("expected a number of layers after \":\", at least 1, found \"{}\"", number));
  }
  return Named<FirstLayers>{.name = text.substr(0, colon), .value = {.count = count}};
}

Unexpected refuse_hash_detail(std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kFormat, fmt::format("expected {}, found {}", expected, found));
}

Result<void> read_hash_detail(std::string_view key, std::string_view value,
                              HashedWeightOptions& options) {
  if (key == "scheme") {
    const HashScheme* scheme = find_named(kHashSchemes, value);
    if (!scheme) return refuse_hash_detail("the scheme roast, hashednet or robe", value);
    options.scheme = *scheme;
    return {};
  }
  if (read_decimal(value, options.compression) && options.compression >= 1) return {};
  return refuse_hash_detail("a compression of at least 1", value);
}

}  // namespace

Result<RecomputeOptions> read_recomputation(const std::string& text) {
  PERFMODEL_TRY(counted, read_first_layers(text));
  const Recomputed* known = find_named(kRecomputations, counted->name);
  if (!known) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected one of {}, found \"{}\"",
                            fmt::join(names_of(kRecomputations), ", "), counted->name));
  }
  if (*known == Recomputed::kNone && counted->value.count) {
    return fail(ErrorCode::kFormat, "expected no number of layers after none, found one");
  }
  return RecomputeOptions{.what = *known, .layers = counted->value};
}

// "+" may separate parts, too: in `whatif`, a comma separates values.
Result<InPlaceOptions> read_in_place(const std::string& text) {
  InPlaceOptions options;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find_first_of(",+");
    PERFMODEL_TRY(counted, read_first_layers(rest.substr(0, comma)));
    more = comma != std::string_view::npos;
    rest.remove_prefix(more ? comma + 1 : rest.size());
    const bool is_gelu = counted->name == "gelu";
    if (!is_gelu && counted->name != "layernorm") {
      return fail(ErrorCode::kUnknownName,
                  fmt::format("expected gelu, layernorm or both, found \"{}\"", counted->name));
    }
    std::optional<FirstLayers>& chosen = is_gelu ? options.gelu : options.layer_norm;
    if (chosen) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected {} once, found it again", counted->name));
    }
    chosen = counted->value;
  }
  return options;
}

// A number is layers per segment, anything else the name of a region.
Result<CheckpointOptions> read_checkpointing(const std::string& text) {
  CheckpointOptions options;
  constexpr std::string_view kMasks = ",masks", kPlusMasks = "+masks";
  std::string_view parts = text;
  options.keep_masks = parts.ends_with(kMasks) || parts.ends_with(kPlusMasks);
  if (options.keep_masks) parts.remove_suffix(kMasks.size());
  const char* const parts_end = parts.data() + parts.size();
  const auto [end, error] = std::from_chars(parts.data(), parts_end, options.every);
  const bool is_number = end == parts_end && !parts.empty();
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
  return options;
}

// Details come last, since names of ops hold ':' too.
Result<HashedWeightOptions> read_hashed_weights(const std::string& whole) {
  HashedWeightOptions options;
  for (std::string_view text = whole;;) {
    const std::size_t colon = text.rfind(':');
    const std::size_t equals = text.rfind('=');
    const bool is_detail = colon != text.npos && equals != text.npos && equals > colon;
    const std::string_view key =
        is_detail ? text.substr(colon + 1, equals - colon - 1) : std::string_view();
    if (key != "scheme" && key != "compression") {
      if (text.empty()) return refuse_hash_detail("a pattern of ops or labels", "nothing");
      options.pattern = text;
      return options;
    }
    PERFMODEL_TRY_TO(read_hash_detail(key, text.substr(equals + 1), options));
    text = text.substr(0, colon);
  }
}

}  // namespace perfmodel
