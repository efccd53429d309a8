#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gain_error.hpp"
#include "path_shares.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "perfmodel/what_if.hpp"
#include "program/host_facts.hpp"

namespace perfmodel::advice {

/// How much of a prediction is asked for.
enum class Detail : std::uint8_t {
  kTotals,
  kPath,   ///< and the critical path
  kParts,  ///< plus the inputs of a gain's error, for two predictions more
};

/// One predicted sequence in the search.
struct PricedVariant {
  double e2e_us = 0;
  std::optional<std::int64_t> batch;  ///< filled by the search
  double needed_bytes = 0;            ///< 0: not known
  double device_bytes = 0;
  PathShares path;  ///< this and the next if they were asked for
  StepParts parts;
};

/// Predicts sequences of rewrites of one graph on one target. Graphs of common beginnings are made
/// once, with their host work; prices of kernels are remembered by their work.
class VariantPricer {
 public:
  /// Both must outlive the pricer.
  VariantPricer(const ExecutionGraph& graph, const WhatIfTarget& target);

  /// Errors: the rewrite that refuses (its name leads), errors of `predict`.
  Result<PricedVariant> price(std::span<const NamedRewrite> rewrites, Detail detail);
  const std::vector<std::string>& warnings() const { return warnings_; }  ///< from the first one

 private:
  struct Made {
    Result<ExecutionGraph> graph;  ///< unless it is the given one
    std::optional<Result<HostFacts>> facts;
  };

  Result<const ExecutionGraph*> make(std::span<const NamedRewrite> rewrites, Made*& made);

  const ExecutionGraph& graph_;
  const WhatIfTarget& target_;
  PriceCache prices_;
  Made given_;
  std::map<std::string, Made> made_;  ///< by rewrite names
  std::size_t nodes_ = 0;             ///< nodes of all graphs in `made_`
  std::vector<std::string> warnings_;
  bool warned_ = false;
};

}  // namespace perfmodel::advice
