#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// A pattern of forward ops that read each other's results, after XLA's pattern_matcher.h. It
/// describes a version (see ForwardFlow) and the op that makes it:
///
///   LSTM  either_order("mul", op("sigmoid", {value("o")}), op("tanh", {value("c'")}))
///
/// Ops are named without "aten::", and the variant in place is the same op. Operands are all
/// tensors that the op takes; lists count by their elements. A name captures the version; met
/// again, it fits no other version.
struct Pattern {
  std::vector<std::string_view> ops = {};             ///< one of them makes it; none: any maker
  std::optional<std::vector<Pattern>> operands = {};  ///< none: any
  bool in_any_order = false;                          ///< both operands
  std::string_view name = {};
  std::string_view as_large_as = {};          ///< has as many elements as the version of this name
  std::vector<std::string_view> passed = {};  ///< ops that may follow: views, casts
  std::string_view words = {};                ///< for Mismatch, see expecting()

  Pattern named(std::string_view it) const { return with(&Pattern::name, it); }
  Pattern of_size(std::string_view other) const { return with(&Pattern::as_large_as, other); }
  /// The version may come through views or casts, which are no part of the match.
  Pattern through(std::vector<std::string_view> views) const {
    return with(&Pattern::passed, std::move(views));
  }
  /// Describes the expected version. A mismatch further inside without words of its own uses this
  /// pattern's.
  Pattern expecting(std::string_view it) const { return with(&Pattern::words, it); }

 private:
  template <class Member>
  Pattern with(Member Pattern::*member, Member to) const {
    Pattern other = *this;
    other.*member = std::move(to);
    return other;
  }
};

Pattern anything();
Pattern value(std::string_view name);
Pattern op(std::string_view name);  ///< with whatever operands
Pattern op(std::string_view name, std::vector<Pattern> operands);
Pattern one_of(std::vector<std::string_view> ops, std::vector<Pattern> operands);
Pattern either_order(std::string_view op, Pattern a, Pattern b);

/// Ops that fit patterns and the versions that have names there.
struct Match {
  std::vector<std::int32_t> ops = {};
  std::vector<std::pair<std::string_view, const Version*>> captures = {};

  /// Null: not captured.
  const Version* operator[](std::string_view name) const;
  /// The ops in their order, each once.
  std::vector<std::int32_t> sorted_ops() const;
};

struct Mismatch {
  const Pattern* pattern = nullptr;
  const Version* found = nullptr;
  int matched_before = 0;  ///< operands; tells which order came further
};

/// "expected aten::tanh, found aten::relu (node 17)"
std::string to_string(const ExecutionGraph& graph, const Mismatch& mismatch);

/// Matches patterns against the forward pass of a graph. For operands in any order, the first order
/// that fits is taken, even if only the other would fit the rest of the pattern.
class PatternMatcher {
 public:
  explicit PatternMatcher(const StepView& step) : graph_(step.graph()), flow_(step.forward()) {}

  /// Adds ops and captures to `match`, which may hold others already; if the version does not fit,
  /// `match` stays as it is.
  tl::expected<void, Mismatch> match(const Pattern& pattern, const Version& version,
                                     Match& match) const;

 private:
  using Fits = tl::expected<void, Mismatch>;

  bool is_one_of(const Version& version, const std::vector<std::string_view>& ops) const;
  Fits match_op(const Pattern& pattern, const Version& version, Match& match) const;
  Fits match_operands(const Pattern& pattern, const Version& version, Match& match) const;
  std::int64_t size(const Version& version) const { return graph_.tensors[version.tensor].numel; }

  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
};

/// An op that reads the result of an op in a match.
struct OutsideReader {
  std::int32_t op = -1, reader = -1;
};
/// The first reader that is none of `ops` (sorted) itself; of results but `kept`.
std::optional<OutsideReader> read_outside(const ForwardFlow& flow,
                                          std::span<const std::int32_t> ops,
                                          std::span<const Version* const> kept);

}  // namespace perfmodel
