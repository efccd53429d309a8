#include "plan_search_space.hpp"

#include <algorithm>
#include <limits>

namespace perfmodel::sharding::search {
namespace {

class Bound {
 public:
  explicit Bound(const FlatSpace& space) : space_(space) {
    for (std::size_t p = 0; p < space.phases; ++p) floors_ += space.floors[p];
  }

  double least() const {
    const double all = under(kInfinite);
    double low = std::max(all, largest_unavoidable());
    if (low == kInfinite || under(low) <= low) return low;
    double high = std::max(low, std::numeric_limits<double>::min());
    while (under(high) > high) {
      low = high;
      high *= 2;
    }
    constexpr int kHalvings = 40;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (under(middle) > middle ? low : high) = middle;
    }
    return low;
  }

 private:
  // At a price: the bound, and the memory of its options.
  struct Relaxed {
    double bound = 0, bytes = 0;
    PhaseLoads loads{};
  };

  double largest_unavoidable() const {
    double largest = floors_;
    for (const Choice& choice : space_.choices) {
      if (choice.tables == 0) continue;
      double least = kInfinite;
      for (std::uint32_t o = 0; o < choice.options; ++o) {
        least = std::min(least, space_.options[choice.first_option + o].least_objective);
      }
      largest = std::max(largest, least);
    }
    return largest;
  }

  // A phase whose mean is below its floor is worth the floor: then its loads weigh nothing.
  double under(double limit) const {
    std::array<double, kMostPhases> weights{};
    std::fill_n(weights.begin(), space_.phases, 1.0);
    double best = floors_;
    for (std::size_t attempt = 0; attempt <= space_.phases; ++attempt) {
      const Relaxed relaxed = at_best_price(limit, weights);
      best = std::max(best, relaxed.bound);
      bool changed = false;
      for (std::size_t p = 0; p < space_.phases; ++p) {
        if (weights[p] > 0 && relaxed.loads[p] < space_.floors[p] * space_.world) {
          weights[p] = 0;
          changed = true;
        }
      }
      if (!changed || best == kInfinite) break;
    }
    return best;
  }

  Relaxed at_best_price(double limit, const std::array<double, kMostPhases>& weights) const {
    const double memory = static_cast<double>(space_.hbm_cap) * space_.world;
    Relaxed best = at_price(limit, weights, 0);
    if (best.bytes <= memory || best.bound == kInfinite) return best;
    constexpr int kDoublings = 200, kHalvings = 40;
    double low = 0, high = (best.bound + std::numeric_limits<double>::min()) / best.bytes * 1e-3;
    const auto look = [&](double price) {
      const Relaxed relaxed = at_price(limit, weights, price);
      if (relaxed.bound > best.bound) best = relaxed;
      return relaxed.bytes > memory;
    };
    int doublings = 0;
    while (look(high)) {
      if (++doublings == kDoublings) {
        best.bound = kInfinite;
        return best;
      }
      low = high;
      high *= 2;
    }
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (look(middle) ? low : high) = middle;
    }
    return best;
  }

  Relaxed at_price(double limit, const std::array<double, kMostPhases>& weights,
                   double price) const {
    Relaxed sum;
    const double ranks = space_.world;
    for (const Choice& choice : space_.choices) {
      if (choice.tables == 0) continue;
      double least = kInfinite;
      const Option* cheapest = nullptr;
      for (std::uint32_t o = 0; o < choice.options; ++o) {
        const Option& option = space_.options[choice.first_option + o];
        if (option.least_objective > limit) continue;
        double cost = price * static_cast<double>(option.hbm);
        for (std::size_t p = 0; p < space_.phases; ++p)
          cost += weights[p] * option.loads[p] / ranks;
        if (cost < least) least = cost, cheapest = &option;
      }
      if (cheapest == nullptr) return {kInfinite, 0, {}};
      const double tables = choice.tables;
      sum.bound += tables * least;
      sum.bytes += tables * static_cast<double>(cheapest->hbm);
      for (std::size_t p = 0; p < space_.phases; ++p) {
        sum.loads[p] += tables * cheapest->loads[p];
      }
    }
    sum.bound -= price * static_cast<double>(space_.hbm_cap) * ranks;
    for (std::size_t p = 0; p < space_.phases; ++p) {
      sum.bound += (1 - weights[p]) * space_.floors[p];
    }
    return sum;
  }

  const FlatSpace& space_;
  double floors_ = 0;
};

}  // namespace

double lower_bound(const FlatSpace& space) {
  constexpr double kRounding = 1e-12;
  return Bound(space).least() * (1 - kRounding);
}

}  // namespace perfmodel::sharding::search
