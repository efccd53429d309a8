#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "priced_plans.hpp"
#include "shard_question.hpp"

/// The questions before the choice of a machine, answered together: ways to shard, types, networks
/// and numbers of GPUs, and how robust the best plan is.
namespace perfmodel::sharding {

/// The best plan for a question that differs in one thing.
struct StudyAnswer {
  std::string name;
  std::string error = {};  ///< why nothing fits; empty: `us` and the rest hold
  double us = 0, samples_per_s = 0, most_memory = 0;
  std::string limit = {};
  std::string plan = {};  ///< in words
  std::int64_t world = 0, batch = 0;
  bool fits() const { return error.empty(); }
};

struct StudyAnswers {
  std::string headline;
  std::vector<std::string> notes, findings;
  std::vector<StudyAnswer> ways, settings, hot_rows, types, networks, worlds;
  /// The best plan as it is, if bags and skew turn out otherwise.
  std::vector<StudyAnswer> robustness;
  double memory_cap = 0;  ///< bytes per GPU
};

/// Errors: load_study()'s; costs that are no times; a batch that the GPUs do not divide;
/// nothing fits anywhere.
Result<StudyAnswers> study_answers(const StudyQuestion& asked, const SearchWatch& watch = {});

/// The answers in sentences. `best`: the plan for the given question; none: nothing fits.
std::vector<std::string> study_findings(const StudyQuestion& asked, const StudyAnswers& answers,
                                        const LoadedStudy& loaded,
                                        const std::optional<PricedPlan>& best);

}  // namespace perfmodel::sharding
