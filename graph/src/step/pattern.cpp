#include "pattern.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/contains.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kAten = "aten::";

std::string words_of(const Pattern& pattern) {
  if (!pattern.words.empty()) return std::string(pattern.words);
  if (pattern.ops.empty()) return fmt::format("the same {} again", pattern.name);
  return fmt::format("aten::{}", fmt::join(pattern.ops, " or aten::"));
}

}  // namespace

Pattern anything() { return {}; }
Pattern value(std::string_view name) { return {.name = name}; }
Pattern op(std::string_view name) { return {.ops = {name}}; }
Pattern op(std::string_view name, std::vector<Pattern> operands) {
  return one_of({name}, std::move(operands));
}
Pattern one_of(std::vector<std::string_view> ops, std::vector<Pattern> operands) {
  return {.ops = std::move(ops), .operands = std::move(operands)};
}
Pattern either_order(std::string_view op, Pattern a, Pattern b) {
  return {.ops = {op}, .operands = std::vector{std::move(a), std::move(b)}, .in_any_order = true};
}

const Version* Match::operator[](std::string_view name) const {
  const auto at = std::ranges::find(captures, name, [](const auto& one) { return one.first; });
  return at == captures.end() ? nullptr : at->second;
}

std::vector<std::int32_t> Match::sorted_ops() const {
  std::vector<std::int32_t> sorted = ops;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

std::string to_string(const ExecutionGraph& graph, const Mismatch& mismatch) {
  const std::int32_t op = mismatch.found->op;
  return fmt::format("expected {}, found {}", words_of(*mismatch.pattern),
                     op < 0 ? "a tensor from outside"
                            : fmt::format("{} (node {})", graph.name(op), graph.node(op).id));
}

bool PatternMatcher::is_one_of(const Version& version,
                               const std::vector<std::string_view>& ops) const {
  if (version.op < 0 || ops.empty()) return false;
  std::string_view name = graph_.name(version.op);
  if (!name.starts_with(kAten)) return false;
  name.remove_prefix(kAten.size());
  if (name.ends_with('_')) name.remove_suffix(1);
  return contains(ops, name);
}

tl::expected<void, Mismatch> PatternMatcher::match(const Pattern& pattern, const Version& version,
                                                   Match& match) const {
  const Version* from = &version;
  while (is_one_of(*from, pattern.passed) && !flow_.inputs(from->op).empty()) {
    from = flow_.inputs(from->op).front();
  }
  const std::size_t ops = match.ops.size(), captures = match.captures.size();
  Fits fits = match_op(pattern, *from, match);
  if (fits) return fits;
  match.ops.resize(ops);
  match.captures.resize(captures);
  const bool says_nothing = fits.error().pattern->words.empty() && !pattern.words.empty();
  return says_nothing ? tl::make_unexpected(Mismatch{&pattern, from}) : fits;
}

PatternMatcher::Fits PatternMatcher::match_op(const Pattern& pattern, const Version& version,
                                              Match& match) const {
  const Version* known = match[pattern.name];
  const Version* other = match[pattern.as_large_as];
  if ((known && known != &version) || (other && size(*other) != size(version)) ||
      (!pattern.ops.empty() && !is_one_of(version, pattern.ops))) {
    return tl::make_unexpected(Mismatch{&pattern, &version});
  }
  if (!known && !pattern.name.empty()) match.captures.emplace_back(pattern.name, &version);
  if (pattern.ops.empty()) return {};
  match.ops.push_back(version.op);
  return match_operands(pattern, version, match);
}

PatternMatcher::Fits PatternMatcher::match_operands(const Pattern& pattern, const Version& version,
                                                    Match& match) const {
  if (!pattern.operands) return {};
  const std::vector<Pattern>& operands = *pattern.operands;
  const std::vector<const Version*>& inputs = flow_.inputs(version.op);
  if (inputs.size() != operands.size()) {
    return tl::make_unexpected(Mismatch{&pattern, &version});
  }
  const auto in_order = [&](std::size_t first) -> Fits {
    const std::size_t ops = match.ops.size(), captures = match.captures.size();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const std::size_t at = first == 0 ? i : operands.size() - 1 - i;
      Fits fits = this->match(operands[i], *inputs[at], match);
      if (fits) continue;
      match.ops.resize(ops);
      match.captures.resize(captures);
      fits.error().matched_before = static_cast<int>(i);
      return fits;
    }
    return {};
  };
  Fits fits = in_order(0);
  if (fits || !pattern.in_any_order) return fits;
  Fits other = in_order(1);
  return other || other.error().matched_before > fits.error().matched_before ? other : fits;
}

std::optional<OutsideReader> read_outside(const ForwardFlow& flow,
                                          std::span<const std::int32_t> ops,
                                          std::span<const Version* const> kept) {
  for (const std::int32_t op : ops) {
    for (const Version* result : flow.outputs(op)) {
      if (contains(kept, result)) continue;
      for (const std::int32_t reader : result->readers) {
        if (!std::ranges::binary_search(ops, reader)) return OutsideReader{op, reader};
      }
    }
  }
  return std::nullopt;
}

}  // namespace perfmodel
