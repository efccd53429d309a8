#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

inline constexpr double kLargestRatio = 8;  // load / target: 8^256 is still a double

inline std::int64_t excess(std::int64_t bytes, std::int64_t cap) {
  return bytes > cap ? bytes - cap : 0;
}

/// The 2^doublings-th powers of loads: each multiplication waits for the one before it, so all
/// loads take turns.
template <std::size_t kLoads>
std::array<double, kLoads> powers_of(std::array<double, kLoads> ratios, int doublings) {
  for (double& ratio : ratios) ratio = std::min(ratio, kLargestRatio);
  for (int i = 0; i < doublings; ++i) {
    for (double& ratio : ratios) ratio *= ratio;
  }
  return ratios;
}

template <std::size_t kSums>
std::array<double, kSums> roots_of(std::array<double, kSums> sums, int doublings) {
  for (int i = 0; i < doublings; ++i) {
    for (double& sum : sums) sum = std::sqrt(sum);
  }
  return sums;
}

/// Merges all values, in lanes: the compiler may not reorder a plain sum of doubles into vectors.
template <class Merge>
double over_ranks(const std::vector<double>& values, const Merge& merge) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  const double* value = values.data();
  std::size_t r = 0;
  for (; r + kLanes <= values.size(); r += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = merge(lanes[i], value[r + i]);
  }
  for (; r < values.size(); ++r) lanes[0] = merge(lanes[0], value[r]);
  double all = 0;
  for (double lane : lanes) all = merge(all, lane);
  return all;
}

/// Loads and memory of all ranks, and what a change of some of them costs.
///
/// The objective, a sum of maxima, says nothing about ranks that are not the slowest. A search goes
/// by its smooth relative: sum over phases of (sum over ranks of load^q)^(1/q), where the floor of
/// a phase counts as one more rank. Loads are taken relative to a target, q is a power of two.
template <std::size_t kPhases>
class Ranks {
 public:
  explicit Ranks(const FlatSpace& space)
      : space_(space), world_(static_cast<std::size_t>(space.world)), seen_(world_, 0) {
    for (std::size_t p = 0; p < kPhases; ++p) {
      now_.loads[p].assign(world_, 0);
      now_.powers[p].assign(world_, 0);
      before_.powers[p].assign(world_, 0);
    }
    now_.hbm.assign(world_, 0);
    now_.ddr.assign(world_, 0);
  }

  // ---- changes: any number of add()s, then settle(), then keep() or take_back()

  void add(std::int32_t rank, const ShardDemand& demand, int sign) {
    const auto r = static_cast<std::size_t>(rank);
    touch(r);
    for (std::size_t p = 0; p < kPhases; ++p) now_.loads[p][r] += sign * demand.loads[p];
    now_.hbm[r] += sign * demand.hbm_bytes;
    now_.ddr[r] += sign * demand.ddr_bytes;
  }

  void add_everywhere(const Option& option, int sign) {
    if (!all_touched_) {
      undo_touched();  // until the loads before are noted
      before_.loads = now_.loads;
      before_.hbm = now_.hbm;
      before_.ddr = now_.ddr;
      undo_touched();
      all_touched_ = true;
    }
    for (std::uint32_t i = 0; i < option.runs; ++i) {
      const Run& run = space_.runs[option.first_run + i];
      const auto begin = static_cast<std::size_t>(run.begin);
      const auto end = static_cast<std::size_t>(run.end);
      for (std::size_t p = 0; p < kPhases; ++p) {
        const double load = sign * run.demand.loads[p];
        double* loads = now_.loads[p].data();
        for (std::size_t r = begin; r < end; ++r) loads[r] += load;
      }
      const std::int64_t hbm = sign * run.demand.hbm_bytes, ddr = sign * run.demand.ddr_bytes;
      for (std::size_t r = begin; r < end; ++r) now_.hbm[r] += hbm;
      for (std::size_t r = begin; r < end && ddr != 0; ++r) now_.ddr[r] += ddr;
    }
  }

  /// False: some rank that changed has not enough memory (unless overflow is allowed).
  bool settle() {
    if (all_touched_) {
      over_ = 0;
      for (std::size_t r = 0; r < world_; ++r) over_ += overflow(r);
      if (over_ > 0 && !may_overflow_) return false;
      sum_powers(before_.powers);
      return true;
    }
    for (const Old& old : old_) {
      over_ +=
          overflow(old.rank) - (excess(old.hbm, space_.hbm_cap) + excess(old.ddr, space_.ddr_cap));
    }
    if (over_ > 0 && !may_overflow_) return false;
    for (const Old& old : old_) {
      std::array<double, kPhases> powers = per_target_;
      for (std::size_t p = 0; p < kPhases; ++p) powers[p] *= now_.loads[p][old.rank];
      powers = powers_of(powers, doublings_);
      for (std::size_t p = 0; p < kPhases; ++p) {
        sums_[p] += powers[p] - old.powers[p];
        now_.powers[p][old.rank] = powers[p];
      }
    }
    return true;
  }

  void keep() {
    bool fell = false;  // far enough for the rest of the old sum to be rounding
    for (std::size_t p = 0; p < kPhases; ++p) fell = fell || sums_[p] < 1e-3 * old_sums_[p];
    if (all_touched_) std::swap(now_.powers, before_.powers);
    if (fell) sum_powers(now_.powers);
    find_largest();
    forget();
    note_cost();
  }

  void take_back() {
    if (all_touched_) {
      std::swap(now_.loads, before_.loads);
      std::swap(now_.hbm, before_.hbm);
      std::swap(now_.ddr, before_.ddr);
    } else {
      undo_touched();
    }
    sums_ = old_sums_;
    over_ = old_over_;
    forget();
  }

  /// Keeps the current state; its maxima become the targets, q = 2^doublings.
  void set_norm(int doublings) {
    doublings_ = doublings;
    one_by_q_ = std::ldexp(1.0, -doublings);
    all_touched_ = true;
    find_largest();
    for (std::size_t p = 0; p < kPhases; ++p) {
      target_[p] = std::max(space_.floors[p], largest_[p]);
      per_target_[p] = target_[p] > 0 ? 1 / target_[p] : 0;
      floor_power_[p] = space_.floors[p] * per_target_[p];
    }
    floor_power_ = powers_of(floor_power_, doublings_);
    over_ = 0;
    for (std::size_t r = 0; r < world_; ++r) over_ += overflow(r);
    sum_powers(now_.powers);
    forget();
    note_cost();
  }

  void allow_overflow(bool may) { may_overflow_ = may; }

  // ---- what it is now

  double cost() const {
    double cost = 0;
    const auto roots = roots_of(sums_, doublings_);
    for (std::size_t p = 0; p < kPhases; ++p) cost += target_[p] * roots[p];
    return with_overflow(cost);
  }
  double kept_cost() const { return with_overflow(kept_cost_); }

  /// Whether cost() > `limit`. Roots are slow, so bounds on them decide if they can: from s to s'
  /// the q-th root grows by at most (s' - s) / q of root / s, and by at least s / s' of that.
  bool costs_more(double limit) const {
    constexpr double kMargin = 1e-11;
    double least = kept_cost_, most = kept_cost_;
    for (std::size_t p = 0; p < kPhases; ++p) {
      if (sums_[p] == old_sums_[p]) continue;
      if (!(sums_[p] > 0) || !(old_sums_[p] > 0)) return cost() > limit;
      const double growth = slopes_[p] * (sums_[p] - old_sums_[p]);
      most += growth;
      least += growth * old_sums_[p] / sums_[p];
    }
    if (over_ == 0 && least > limit * (1 + kMargin)) return true;
    if (over_ == 0 && most < limit * (1 - kMargin)) return false;
    return cost() > limit;
  }

  /// Objective of the state that was kept last.
  double objective() const {
    double sum = 0;
    for (std::size_t p = 0; p < kPhases; ++p) sum += std::max(space_.floors[p], largest_[p]);
    return sum;
  }

  /// In the state that was kept last.
  std::int32_t slowest(std::size_t phase) {
    if (slowest_[phase] < 0) {
      const auto& loads = now_.loads[phase];
      const auto at = std::find(loads.begin(), loads.end(), largest_[phase]);
      slowest_[phase] = at == loads.end() ? 0 : static_cast<std::int32_t>(at - loads.begin());
    }
    return slowest_[phase];
  }

  double load(std::int32_t rank) const {  ///< over all phases
    double sum = 0;
    for (std::size_t p = 0; p < kPhases; ++p) sum += now_.loads[p][rank];
    return sum;
  }
  double load(std::size_t phase, std::int32_t rank) const { return now_.loads[phase][rank]; }
  bool has_room(std::int32_t rank, const ShardDemand& demand) const {
    return now_.hbm[rank] + demand.hbm_bytes <= space_.hbm_cap &&
           now_.ddr[rank] + demand.ddr_bytes <= space_.ddr_cap;
  }
  std::int64_t overflow() const { return over_; }

  void clear() {
    for (std::size_t p = 0; p < kPhases; ++p) {
      std::fill(now_.loads[p].begin(), now_.loads[p].end(), 0.0);
    }
    std::fill(now_.hbm.begin(), now_.hbm.end(), 0);
    std::fill(now_.ddr.begin(), now_.ddr.end(), 0);
    forget();
  }

 private:
  // A rank that lacks all its memory makes a plan this many times as costly.
  static constexpr double kOverflowPrice = 10;

  using ByPhase = std::array<std::vector<double>, kPhases>;
  struct Numbers {
    ByPhase loads, powers;
    std::vector<std::int64_t> hbm, ddr;
  };
  struct Old {
    std::size_t rank = 0;
    std::array<double, kPhases> loads{}, powers{};
    std::int64_t hbm = 0, ddr = 0;
  };

  double caps() const {
    return std::max(
        1.0, std::min(static_cast<double>(space_.hbm_cap), static_cast<double>(space_.ddr_cap)));
  }
  std::int64_t overflow(std::size_t r) const {
    return excess(now_.hbm[r], space_.hbm_cap) + excess(now_.ddr[r], space_.ddr_cap);
  }
  double largest(std::size_t phase) const {
    return over_ranks(now_.loads[phase], [](double a, double b) { return a > b ? a : b; });
  }

  // Asks the ranks that changed, as no others can make the largest load another one.
  void find_largest() {
    for (std::size_t p = 0; p < kPhases; ++p) {
      const double before = largest_[p];
      bool look_at_all = all_touched_;
      for (const Old& old : old_) {
        const double load = now_.loads[p][old.rank];
        look_at_all = look_at_all || old.loads[p] == before;
        if (load < before) continue;
        largest_[p] = std::max(largest_[p], load);
        slowest_[p] = -1;
      }
      if (!look_at_all) continue;
      largest_[p] = largest(p);
      slowest_[p] = -1;
    }
  }

  double with_overflow(double cost) const {
    return over_ == 0 ? cost : cost * (1 + kOverflowPrice * static_cast<double>(over_) / caps());
  }

  void note_cost() {
    kept_cost_ = 0;
    const auto roots = roots_of(sums_, doublings_);
    for (std::size_t p = 0; p < kPhases; ++p) {
      const double cost = target_[p] * roots[p];
      kept_cost_ += cost;
      slopes_[p] = cost / sums_[p] * one_by_q_;
    }
  }

  void sum_powers(ByPhase& to) {
    for (std::size_t p = 0; p < kPhases; ++p) {
      double* powers = to[p].data();
      const double* loads = now_.loads[p].data();
      for (std::size_t r = 0; r < world_; ++r) {
        const double ratio = loads[r] * per_target_[p];
        powers[r] = ratio < kLargestRatio ? ratio : kLargestRatio;
      }
      for (int i = 0; i < doublings_; ++i) {
        for (std::size_t r = 0; r < world_; ++r) powers[r] *= powers[r];
      }
      sums_[p] = floor_power_[p] + over_ranks(to[p], [](double a, double b) { return a + b; });
    }
  }

  void touch(std::size_t r) {
    if (all_touched_ || seen_[r] == epoch_) return;
    seen_[r] = epoch_;
    Old old{r, {}, {}, now_.hbm[r], now_.ddr[r]};
    for (std::size_t p = 0; p < kPhases; ++p) {
      old.loads[p] = now_.loads[p][r];
      old.powers[p] = now_.powers[p][r];
    }
    old_.push_back(old);
  }

  // Calling it twice in a row changes nothing.
  void undo_touched() {
    for (Old& old : old_) {
      for (std::size_t p = 0; p < kPhases; ++p) {
        std::swap(now_.loads[p][old.rank], old.loads[p]);
        std::swap(now_.powers[p][old.rank], old.powers[p]);
      }
      std::swap(now_.hbm[old.rank], old.hbm);
      std::swap(now_.ddr[old.rank], old.ddr);
    }
  }

  void forget() {
    old_.clear();
    all_touched_ = false;
    ++epoch_;
    old_sums_ = sums_;
    old_over_ = over_;
  }

  const FlatSpace& space_;
  const std::size_t world_;
  Numbers now_, before_;
  std::array<double, kPhases> target_{}, per_target_{}, floor_power_{}, sums_{}, old_sums_{};
  std::array<double, kPhases> largest_{}, slopes_{};
  double kept_cost_ = 0, one_by_q_ = 0;
  std::array<std::int32_t, kPhases> slowest_{};
  std::int64_t over_ = 0, old_over_ = 0;
  int doublings_ = 5;
  bool may_overflow_ = false, all_touched_ = false;
  std::vector<Old> old_;
  std::vector<std::uint64_t> seen_;
  std::uint64_t epoch_ = 1;
};

}  // namespace perfmodel::sharding::search
