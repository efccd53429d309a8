#include "plan_search_seeds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace perfmodel::sharding::search {
namespace {

constexpr auto kNever = std::numeric_limits<double>::max();

class Seeds {
 public:
  Seeds(const FlatSpace& space, std::size_t most, const std::function<bool()>& go_on)
      : space_(space), packing_(space), most_(most), go_on_(go_on), best_(space.choices.size()) {
    layout_.option.resize(space.choice_of.size());
    double loads = 0, bytes = 0;
    for (const Option& option : space.options) {
      loads += option.load;
      bytes += static_cast<double>(option.hbm);
    }
    price_ = bytes > 0 ? loads / bytes : 0;
  }

  // Limits on the largest shard from the bound to five times as much, and none.
  void sweep_limits(double lower_bound, double share) {
    constexpr double kSteps = 14, kGrowth = 1.12;
    const auto steps = static_cast<int>(std::ceil(share * kSteps));
    double limit = lower_bound;
    for (int step = 0; step <= steps && go_on(); ++step) {
      bisect_price(step == steps ? kNever : limit);
      limit *= std::pow(kGrowth, kSteps / steps);
    }
  }

  // TorchRec: every table starts with its best option; the one that takes most memory goes on to
  // its next best. A few places of that sequence are tried.
  void descend(bool by_largest, double share) {
    const std::size_t tried = std::max(1L, std::lround(40 * share));
    std::vector<std::vector<std::uint32_t>> sorted;
    std::size_t steps = 0;
    for (const Choice& choice : space_.choices) {
      std::vector<std::uint32_t> options(choice.options);
      std::iota(options.begin(), options.end(), choice.first_option);
      const auto score = [&](std::uint32_t o) {
        return by_largest ? space_.options[o].largest : space_.options[o].load;
      };
      std::stable_sort(options.begin(), options.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return score(a) < score(b); });
      sorted.push_back(std::move(options));
    }
    std::vector<std::pair<Memory, std::uint32_t>> heap;
    std::vector<std::uint32_t> reached(space_.choice_of.size(), 0);
    for (std::uint32_t table = 0; table < reached.size(); ++table) {
      const auto& options = sorted[space_.choice_of[table]];
      layout_.option[table] = options.front();
      steps += options.size() - 1;
      if (options.size() > 1) heap.emplace_back(memory_of(options.front()), table);
    }
    std::make_heap(heap.begin(), heap.end());
    const std::size_t stride = std::max<std::size_t>(1, steps / tried);
    for (std::size_t step = 0;; ++step) {
      if (step % stride == 0 || heap.empty()) {
        if (!go_on()) return;
        try_it();
      }
      if (heap.empty()) return;
      std::pop_heap(heap.begin(), heap.end());
      const std::uint32_t table = heap.back().second;
      heap.pop_back();
      const auto& options = sorted[space_.choice_of[table]];
      layout_.option[table] = options[++reached[table]];
      if (reached[table] + 1 < options.size()) {
        heap.emplace_back(memory_of(layout_.option[table]), table);
        std::push_heap(heap.begin(), heap.end());
      }
    }
  }

  // One spread for all tables that have it, with few or many pieces.
  void uniform() {
    for (const Spread spread :
         {Spread::kFree, Spread::kEverywhere, Spread::kOneHost, Spread::kHostBlocks}) {
      for (const bool by_largest : {false, true}) {
        if (!go_on()) return;
        choose([&](const Option& option) {
          const double score = by_largest ? option.largest : option.load;
          return option.spread == spread ? std::pair(0, score) : std::pair(1, score);
        });
        fill();
        try_it();
      }
    }
  }

  std::vector<Layout> take() { return std::move(found_); }

 private:
  // At least one is found, whatever the time.
  bool go_on() const { return go_on_() || found_.empty(); }

  using Memory = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  Memory memory_of(std::uint32_t o) const {
    const Option& option = space_.options[o];
    return {option.hbm_max, option.hbm, option.ddr_max, option.ddr};
  }

  template <class Score>
  void choose(const Score& score) {
    for (std::size_t c = 0; c < space_.choices.size(); ++c) {
      const Choice& choice = space_.choices[c];
      std::uint32_t best = choice.first_option;
      for (std::uint32_t o = 1; o < choice.options; ++o) {
        const std::uint32_t option = choice.first_option + o;
        if (score(space_.options[option]) < score(space_.options[best])) best = option;
      }
      best_[c] = best;
    }
  }
  void fill() {
    for (std::size_t t = 0; t < layout_.option.size(); ++t) {
      layout_.option[t] = best_[space_.choice_of[t]];
    }
  }

  // The cheapest options whose shards stay below the limit, a byte costing `price`.
  void choose_at(double limit, double price) {
    choose([&](const Option& option) {
      const double cost = option.load + price * static_cast<double>(option.hbm);
      return option.least_objective <= limit ? std::pair(0, cost)
                                             : std::pair(1, option.least_objective);
    });
  }

  void bisect_price(double limit) {
    constexpr int kRaises = 14, kHalvings = 6;
    constexpr double kRaise = 4;
    choose_at(limit, 0);
    fill();
    if (try_it() || price_ == 0) return;
    double low = 0, high = price_ / 1024;
    for (int i = 0;; ++i) {
      if (i == kRaises || !go_on()) return;
      choose_at(limit, high);
      fill();
      if (try_it()) break;
      low = high;
      high *= kRaise;
    }
    std::vector<std::uint32_t> dear = best_;  // options at the least known price that fits
    choose_at(limit, low);
    std::vector<std::uint32_t> cheap = best_;
    for (int i = 0; i < kHalvings && cheap != dear && go_on(); ++i) {
      const double middle = low > 0 ? (low + high) / 2 : high / kRaise;
      choose_at(limit, middle);
      fill();
      if (try_it()) {
        high = middle;
        dear = best_;
      } else {
        low = middle;
        cheap = best_;
      }
    }
    mix(cheap, dear);
  }

  // Tables that are alike change over at one price: only so many of them that the rest fits.
  void mix(const std::vector<std::uint32_t>& cheap, const std::vector<std::uint32_t>& dear) {
    constexpr int kHalvings = 6;
    std::vector<std::uint32_t> turned;
    for (std::uint32_t t = 0; t < layout_.option.size(); ++t) {
      const std::uint32_t c = space_.choice_of[t];
      if (cheap[c] != dear[c]) turned.push_back(t);
    }
    std::size_t low = 0, high = turned.size();  // cheap: fits, does not
    for (int i = 0; i < kHalvings && high - low > 1 && go_on(); ++i) {
      const std::size_t middle = (low + high) / 2;
      best_ = dear;
      fill();
      for (std::size_t k = 0; k < middle; ++k) {
        layout_.option[turned[k]] = cheap[space_.choice_of[turned[k]]];
      }
      (try_it() ? low : high) = middle;
    }
  }

  bool fits_in_all() const {
    double hbm = 0;
    for (std::uint32_t option : layout_.option) {
      hbm += static_cast<double>(space_.options[option].hbm);
    }
    return hbm <= static_cast<double>(space_.hbm_cap) * space_.world;
  }

  bool try_it() {
    if (!fits_in_all()) return false;
    if (!packing_.pack(layout_, Packing::Order::kLongestFirst) &&
        !packing_.pack(layout_, Packing::Order::kLargestFirst)) {
      return false;
    }
    const auto place = std::lower_bound(
        found_.begin(), found_.end(), layout_,
        [](const Layout& a, const Layout& b) { return a.objective < b.objective; });
    if (place != found_.end() && place->objective == layout_.objective) return true;
    found_.insert(place, layout_);
    if (found_.size() > most_) found_.pop_back();
    return true;
  }

  const FlatSpace& space_;
  Packing packing_;
  const std::size_t most_;
  const std::function<bool()>& go_on_;
  std::vector<std::uint32_t> best_;  // per choice
  double price_ = 0;                 // approximate price of a byte
  Layout layout_;
  std::vector<Layout> found_;
};

}  // namespace

std::vector<Layout> make_seeds(const FlatSpace& space, double lower_bound, std::size_t most,
                               double share, const std::function<bool()>& go_on) {
  Seeds seeds(space, most, go_on);
  seeds.sweep_limits(lower_bound, share);
  seeds.descend(true, share);
  seeds.descend(false, share);
  seeds.uniform();
  return seeds.take();
}

Layout smallest_layout(const FlatSpace& space) {
  Layout layout;
  layout.option.resize(space.choice_of.size());
  for (std::size_t t = 0; t < layout.option.size(); ++t) {
    const Choice& choice = space.choices[space.choice_of[t]];
    const auto begin = space.options.begin() + choice.first_option;
    const auto least =
        std::min_element(begin, begin + choice.options, [](const auto& a, const auto& b) {
          return std::tuple(a.hbm, a.hbm_max, a.ddr) < std::tuple(b.hbm, b.hbm_max, b.ddr);
        });
    layout.option[t] = static_cast<std::uint32_t>(least - space.options.begin());
  }
  Packing packing(space);
  if (!packing.pack(layout, Packing::Order::kLargestFirst)) {
    // A table without a host that has room stays at its present place: any allowed places.
    packing.pack(layout, Packing::Order::kLargestFirst, true);
  }
  return layout;
}

}  // namespace perfmodel::sharding::search
