#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "move_order.hpp"
#include "perfmodel/detail/advice.hpp"
#include "rewrite_moves.hpp"
#include "variant_pricer.hpp"

namespace perfmodel::advice {

/// A predicted state of the search.
struct Candidate {
  State state;
  PricedVariant priced;
  double cost_us = 0;  ///< for the samples of the given step
  bool fits = true;
  Detail detail = Detail::kTotals;
};

/// Smaller is better: variants that fit come first, then by cost or by memory.
bool better(const Candidate& a, const Candidate& b);

/// A rewrite that changes numbers ranks before one that keeps them if it gains this many times as
/// much.
inline constexpr double kChangedNumbersTimes = 5;
/// A gain as it counts in a ranking of rewrites [us].
inline double worth_us(double gain_us, bool same_numbers) {
  return same_numbers ? gain_us : gain_us / kChangedNumbersTimes;
}

/// A state that was not taken up, and why.
struct Refusal {
  LostMove::Why why = LostMove::Why::kRefused;
  std::string reason;
  std::optional<double> step_us;
};

struct SearchLimits {
  AdviceObjective objective = AdviceObjective::kStep;
  double memory_bytes = 0;  ///< 0: nothing is held back
  std::size_t beam = 3;
  std::chrono::steady_clock::time_point deadline;
  std::stop_token cancel = {};
  std::function<void(std::size_t)> progress = {};
};

/// The states of the axes, predicted at most once each.
class AdviceSearch {
 public:
  AdviceSearch(const std::vector<Axis>& axes, const Job& job, const SearchLimits& limits,
               VariantPricer& pricer);

  /// Errors of a prediction of the graph as it is.
  Result<void> begin();
  /// Every single choice, walks over the ladders included.
  void try_singles();
  /// The beam, until nothing improves on it. Changes that add nothing leave the best sequence.
  void combine();

  const Candidate& baseline() const { return baseline_; }
  const Candidate& best() const { return best_; }
  /// The best one seen in which no choice changes numbers.
  const Candidate& best_of_same_numbers() const;
  bool complete() const { return complete_; }

  /// Predicted before or now, with at least this detail; null: refused.
  const Candidate* find(const State& state, Detail detail = Detail::kTotals);
  std::size_t evaluations() const { return evaluations_; }  ///< sequences predicted
  bool knows(const State& state) const { return known_.contains(state); }
  /// Why a single choice is not among the gains; none: it was predicted.
  const Refusal* refusal(const State& state) const;
  /// The least that the path of the present best says about an axis [us].
  double bound_us(const Candidate& from, const Axis& axis) const;
  /// Singles that the search did not predict, with the most that they could gain [us].
  const std::map<State, double>& pruned() const { return pruned_; }

 private:
  struct Known {
    std::optional<Candidate> candidate;
    Refusal refusal;
  };

  bool out_of_time();
  bool keeps_numbers(const State& state) const;
  bool worth_it(const Candidate& from, const Axis& axis) const;
  const Candidate* with(const Candidate& from, std::size_t axis, std::size_t choice);
  void walk(const Candidate& from, std::size_t axis, std::vector<const Candidate*>& found);
  void open_batch(const Candidate& from, std::vector<const Candidate*>& found);
  void neighbours(const Candidate& start, std::vector<const Candidate*>& found);
  void drop_idle();
  void keep_numbers();

  const std::vector<Axis>& axes_;
  const Job& job_;
  const SearchLimits& limits_;
  VariantPricer& pricer_;
  Candidate baseline_, best_;
  std::map<State, Known> known_;
  std::map<State, double> pruned_;
  std::optional<std::size_t> batch_axis_;
  std::size_t evaluations_ = 0;
  bool memory_matters_ = false, complete_ = true;
  bool memory_refused_ = false;  // some sequence did not fit
};

}  // namespace perfmodel::advice
