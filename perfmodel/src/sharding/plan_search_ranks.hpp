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

/// A number per phase, two of which are added or multiplied at once: compilers make no pairs of
/// numbers that they hold in registers.
template <std::size_t kPhases>
struct ByPhase {
  using Pair [[gnu::vector_size(2 * sizeof(double))]] = double;
  static constexpr std::size_t kPairs = (kPhases + 1) / 2;
  Pair pairs[kPairs] = {};

  /// Takes the first numbers of an array, with a 0 after them if phases are odd.
  template <std::size_t kNumbers>
  static ByPhase of(const std::array<double, kNumbers>& numbers) {
    ByPhase made;
    for (std::size_t p = 0; p < kPhases; ++p) made.pairs[p / 2][p % 2] = numbers[p];
    return made;
  }
  double operator[](std::size_t phase) const { return pairs[phase / 2][phase % 2]; }
  ByPhase& operator+=(const ByPhase& more) {
    for (std::size_t i = 0; i < kPairs; ++i) pairs[i] += more.pairs[i];
    return *this;
  }
  friend ByPhase operator*(ByPhase a, const ByPhase& b) {
    for (std::size_t i = 0; i < kPairs; ++i) a.pairs[i] *= b.pairs[i];
    return a;
  }
  void raise_to(const ByPhase& other) {
    for (std::size_t i = 0; i < kPairs; ++i) {
      pairs[i] = pairs[i] > other.pairs[i] ? pairs[i] : other.pairs[i];
    }
  }
};

/// The 2^doublings-th powers of loads: each multiplication waits for the one before it, so all
/// loads take turns.
template <std::size_t kPhases>
ByPhase<kPhases> powers_of(ByPhase<kPhases> ratios, int doublings) {
  constexpr typename ByPhase<kPhases>::Pair kLargest = {kLargestRatio, kLargestRatio};
  for (auto& pair : ratios.pairs) pair = pair < kLargest ? pair : kLargest;
  for (int i = 0; i < doublings; ++i) ratios = ratios * ratios;
  return ratios;
}

template <std::size_t kSums>
std::array<double, kSums> roots_of(std::array<double, kSums> sums, int doublings) {
  for (int i = 0; i < doublings; ++i) {
    for (double& sum : sums) sum = std::sqrt(sum);
  }
  return sums;
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
      : space_(space),
        world_(static_cast<std::size_t>(space.world)),
        now_(world_),
        powers_(world_),
        next_powers_(world_),
        seen_(world_, 0) {}

  // ---- changes: any number of add()s, then settle(), then keep() or take_back()

  void add(std::int32_t rank, const ShardDemand& demand, int sign) {
    const auto r = static_cast<std::size_t>(rank);
    touch(r);
    now_[r] += Rank::of(demand, sign);
  }

  void add_everywhere(const Option& option, int sign) {
    if (!all_touched_) {
      before_ = now_;
      for (const Old& old : old_) before_[old.rank] = old.now;
      all_touched_ = true;
    }
    for (std::uint32_t i = 0; i < option.runs; ++i) {
      const Run& run = space_.runs[option.first_run + i];
      const Rank more = Rank::of(run.demand, sign);
      for (std::int32_t r = run.begin; r < run.end; ++r) now_[r] += more;
    }
  }

  /// False: some rank that changed has not enough memory (unless overflow is allowed).
  bool settle() {
    if (all_touched_) {
      over_ = 0;
      for (const Rank& rank : now_) over_ += overflow(rank);
      if (over_ > 0 && !may_overflow_) return false;
      sum_powers(next_powers_);
      return true;
    }
    for (const Old& old : old_) over_ += overflow(now_[old.rank]) - overflow(old.now);
    if (over_ > 0 && !may_overflow_) return false;
    for (const Old& old : old_) {
      const Numbers powers = powers_of(now_[old.rank].loads * per_target_, doublings_);
      for (std::size_t p = 0; p < kPhases; ++p) sums_[p] += powers[p] - old.powers[p];
      powers_[old.rank] = powers;
    }
    return true;
  }

  void keep() {
    bool fell = false;  // far enough for the rest of the old sum to be rounding
    for (std::size_t p = 0; p < kPhases; ++p) fell = fell || sums_[p] < 1e-3 * old_sums_[p];
    if (all_touched_) powers_.swap(next_powers_);
    if (fell) sum_powers(powers_);
    find_largest();
    forget();
    note_cost();
  }

  void take_back() {
    if (all_touched_) {
      now_.swap(before_);
    } else {
      for (const Old& old : old_) {
        now_[old.rank] = old.now;
        powers_[old.rank] = old.powers;
      }
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
    std::array<double, kPhases> per_target{};
    for (std::size_t p = 0; p < kPhases; ++p) {
      target_[p] = std::max(space_.floors[p], largest_[p]);
      per_target[p] = target_[p] > 0 ? 1 / target_[p] : 0;
    }
    per_target_ = Numbers::of(per_target);
    floor_power_ = powers_of(Numbers::of(space_.floors) * per_target_, doublings_);
    over_ = 0;
    for (const Rank& rank : now_) over_ += overflow(rank);
    sum_powers(powers_);
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

  struct CostRange {
    double least = -kInfinite, most = kInfinite;
  };
  /// Bounds on cost(), whose roots are slow: from s to s' the q-th root grows by at most
  /// (s' - s) / q of root / s, and by at least s / s' of that.
  CostRange cost_range() const {
    CostRange range{kept_cost_, kept_cost_};
    for (std::size_t p = 0; p < kPhases; ++p) {
      if (sums_[p] == old_sums_[p]) continue;
      if (!(sums_[p] > 0) || !(old_sums_[p] > 0)) return {};
      const double growth = slopes_[p] * (sums_[p] - old_sums_[p]);
      range.most += growth;
      range.least += growth * old_sums_[p] / sums_[p];
    }
    return over_ == 0 ? range : CostRange{};
  }
  /// Whether cost() > `limit`. The bounds decide if they can.
  bool costs_more(double limit, const CostRange& range) const {
    constexpr double kMargin = 1e-11;
    if (range.least > limit * (1 + kMargin)) return true;
    if (range.most < limit * (1 - kMargin)) return false;
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
      const auto at = std::ranges::find(now_, largest_[phase],
                                        [&](const Rank& rank) { return rank.loads[phase]; });
      slowest_[phase] = at == now_.end() ? 0 : static_cast<std::int32_t>(at - now_.begin());
    }
    return slowest_[phase];
  }

  double load(std::int32_t rank) const {  ///< over all phases
    double sum = 0;
    for (std::size_t p = 0; p < kPhases; ++p) sum += now_[rank].loads[p];
    return sum;
  }
  double load(std::size_t phase, std::int32_t rank) const { return now_[rank].loads[phase]; }
  bool has_room(std::int32_t rank, const ShardDemand& demand) const {
    return now_[rank].hbm + demand.hbm_bytes <= space_.hbm_cap &&
           now_[rank].ddr + demand.ddr_bytes <= space_.ddr_cap;
  }
  std::int64_t overflow() const { return over_; }

  /// Loads that are added next cannot be taken back until `set_norm` keeps them.
  void clear() {
    std::ranges::fill(now_, Rank{});
    forget();
    all_touched_ = true;
  }

 private:
  // A rank that lacks all its memory makes a plan this many times as costly.
  static constexpr double kOverflowPrice = 10;

  using Numbers = ByPhase<kPhases>;
  struct Rank {
    Numbers loads;
    std::int64_t hbm = 0, ddr = 0;

    static Rank of(const ShardDemand& demand, int sign) {
      Rank made{Numbers::of(demand.loads), sign * demand.hbm_bytes, sign * demand.ddr_bytes};
      for (auto& pair : made.loads.pairs) pair *= static_cast<double>(sign);
      return made;
    }
    void operator+=(const Rank& more) {
      loads += more.loads;
      hbm += more.hbm;
      ddr += more.ddr;
    }
  };
  struct Old {
    std::size_t rank = 0;
    Rank now;
    Numbers powers;
  };

  double caps() const {
    return std::max(
        1.0, std::min(static_cast<double>(space_.hbm_cap), static_cast<double>(space_.ddr_cap)));
  }
  std::int64_t overflow(const Rank& rank) const {
    return excess(rank.hbm, space_.hbm_cap) + excess(rank.ddr, space_.ddr_cap);
  }
  Numbers largest() const {
    Numbers largest;
    for (const Rank& rank : now_) largest.raise_to(rank.loads);
    return largest;
  }

  // Only ranks that changed can raise the largest load. All ranks are asked if the one that had it
  // changed.
  void find_largest() {
    std::array<bool, kPhases> look_at_all{};
    look_at_all.fill(all_touched_);
    const std::array<double, kPhases> before = largest_;
    for (const Old& old : old_) {
      for (std::size_t p = 0; p < kPhases; ++p) {
        const double load = now_[old.rank].loads[p];
        look_at_all[p] = look_at_all[p] || old.now.loads[p] == before[p];
        if (load < before[p]) continue;
        largest_[p] = std::max(largest_[p], load);
        slowest_[p] = -1;
      }
    }
    if (std::ranges::find(look_at_all, true) == look_at_all.end()) return;
    const Numbers all = largest();
    for (std::size_t p = 0; p < kPhases; ++p) {
      if (!look_at_all[p]) continue;
      largest_[p] = all[p];
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

  void sum_powers(std::vector<Numbers>& to) {
    constexpr std::size_t kLanes = 8;  // sums that need not wait for each other
    std::array<Numbers, kLanes> lanes;
    const std::size_t whole = world_ - world_ % kLanes;
    for (std::size_t r = 0; r < world_; ++r) {
      to[r] = powers_of(now_[r].loads * per_target_, doublings_);
      lanes[r < whole ? r % kLanes : 0] += to[r];
    }
    Numbers all;
    for (const Numbers& lane : lanes) all += lane;
    for (std::size_t p = 0; p < kPhases; ++p) sums_[p] = floor_power_[p] + all[p];
  }

  void touch(std::size_t r) {
    if (all_touched_ || seen_[r] == epoch_) return;
    seen_[r] = epoch_;
    old_.push_back({r, now_[r], powers_[r]});
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
  std::vector<Rank> now_, before_;
  std::vector<Numbers> powers_, next_powers_;  // kept; after a change of all ranks
  Numbers per_target_, floor_power_;
  std::array<double, kPhases> target_{}, sums_{}, old_sums_{}, largest_{}, slopes_{};
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
