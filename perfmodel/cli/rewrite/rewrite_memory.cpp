#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

using What = RecomputeOptions::What;

struct NamedRecomputation {
  std::string_view name;
  What what;
};
constexpr NamedRecomputation kRecomputations[] = {
    {"none", What::kNone},           {"full", What::kFull}, {"selective", What::kSelective},
    {"attention", What::kSelective}, {"op", What::kOp},     {"dropout", What::kDropout},
    {"scoring", What::kScoring},
};

struct Counted {
  std::string_view name;
  FirstLayers layers;
};

// "gelu:12"
Result<Counted> parse_counted(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return Counted{.name = text, .layers = {}};
  const std::string_view number = text.substr(colon + 1);
  int count = 0;
  const char* const behind = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data(), behind, count);
  if (error != std::errc() || end != behind || count < 1) {
    return fail(
        ErrorCode::kFormat,
        fmt::format("expected a number of layers behind \":\", at least 1, found \"{}\"", number));
  }
  return Counted{.name = text.substr(0, colon), .layers = {.count = count}};
}

Result<Rewrite> parse_recomputation(const std::string& text) {
  const auto counted = parse_counted(text);
  if (!counted) return Unexpected{counted.error()};
  const auto* known = std::ranges::find(kRecomputations, counted->name, &NamedRecomputation::name);
  if (known == std::end(kRecomputations)) {
    std::vector<std::string_view> names;
    for (const NamedRecomputation& one : kRecomputations) names.push_back(one.name);
    return fail(ErrorCode::kUnknownName, fmt::format("expected one of {}, found \"{}\"",
                                                     fmt::join(names, ", "), counted->name));
  }
  if (known->what == What::kNone && counted->layers.count) {
    return fail(ErrorCode::kFormat, "expected no number of layers behind none, found one");
  }
  const RecomputeOptions options{.what = known->what, .layers = counted->layers};
  return [options](const ExecutionGraph& graph) { return rewrite_recomputation(graph, options); };
}

// "gelu,layernorm:12"; "+" where a comma parts values, as in `whatif`.
Result<Rewrite> parse_in_place(const std::string& text) {
  InPlaceOptions options;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find_first_of(",+");
    const auto counted = parse_counted(rest.substr(0, comma));
    if (!counted) return Unexpected{counted.error()};
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
    chosen = counted->layers;
  }
  return [options](const ExecutionGraph& graph) { return rewrite_in_place(graph, options); };
}

}  // namespace

RewriteOption recompute_option() {
  return {.flag = "--recompute",
          .value = "none|full|op|selective|dropout|scoring[:N]",
          .help =
              "What the backward pass computes again: layers, layers but for the results of every "
              "second matrix product and of attention (op), attention (selective or attention: "
              "from scores to the product with V), the dropped-out attention matrix alone, the "
              "scoring of recurrent decoders; N: in the first N layers (scoring: steps)",
          .for_build = true,
          .parse = parse_recomputation};
}

RewriteOption offload_option() {
  return {.flag = "--offload-activations",
          .value = "",
          .help =
              "Activations of 1 MiB and more go to pinned host memory behind their last use in the "
              "forward pass and return before the backward pass reads them, in copies on a stream "
              "of their own",
          .for_build = true,
          .parse = [](const std::string&) -> Result<Rewrite> {
            return [](const ExecutionGraph& graph) { return rewrite_offload(graph, {}); };
          }};
}

RewriteOption accumulate_option() {
  return {.flag = "--accumulate",
          .value = "K",
          .help =
              "Gradient accumulation: K forward and backward passes, each with the batch of the "
              "graph, and one step of the optimizer; behind it, --data-parallel reduces gradients "
              "in the last pass alone (no_sync)",
          .for_build = true,
          .parse = [](const std::string& text) -> Result<Rewrite> {
            std::int64_t passes = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, passes);
            if (error != std::errc() || rest != end || passes < 1) {
              return fail(ErrorCode::kFormat,
                          fmt::format("expected a number of backward passes, found \"{}\"", text));
            }
            return [passes](const ExecutionGraph& graph) {
              return rewrite_accumulation(graph, passes);
            };
          }};
}

RewriteOption in_place_option() {
  return {.flag = "--in-place",
          .value = "gelu[:N],layernorm[:N]",
          .help =
              "GELU and layer norm that keep output and mask, or output, instead of their input "
              "(Tempo); N: in the first N layers",
          .for_build = true,
          .parse = parse_in_place};
}

}  // namespace perfmodel::cli
