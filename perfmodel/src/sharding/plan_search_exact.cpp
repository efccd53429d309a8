#include "plan_search_exact.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace perfmodel::sharding::search {
namespace {

class Enumeration {
 public:
  Enumeration(const FlatSpace& space, const Layout& best, std::uint64_t most_nodes,
              const std::function<bool()>& go_on)
      : space_(space),
        most_nodes_(most_nodes),
        go_on_(go_on),
        order_(space.choice_of.size()),
        ranks_(space.world),
        kind_(space.world),
        layout_(best) {
    out_.best = best;
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto key = [&](std::uint32_t t) {
        const std::uint32_t c = space.choice_of[t];
        return std::tuple(-least(c).load, c);
      };
      return key(a) < key(b);
    });
    left_.resize(order_.size() + 1);
    for (std::size_t i = order_.size(); i-- > 0;) {
      const Least table = least(space.choice_of[order_[i]]);
      left_[i] = {left_[i + 1].load + table.load, left_[i + 1].hbm + table.hbm};
    }
    tell_ranks_apart();
  }

  ExactOutcome run() {
    place_table(0);
    out_.complete = !gave_up_;
    return std::move(out_);
  }

 private:
  struct Least {
    double load = 0, hbm = 0;
  };
  struct Rank {
    PhaseLoads loads{};
    std::int64_t hbm = 0, ddr = 0;
    bool used = false;  // by the table that is being placed
    bool operator==(const Rank&) const = default;
  };

  Least least(std::uint32_t c) const {
    Least least{kInfinite, kInfinite};
    const Choice& choice = space_.choices[c];
    for (std::uint32_t o = 0; o < choice.options; ++o) {
      const Option& option = space_.options[choice.first_option + o];
      least.load = std::min(least.load, option.load);
      least.hbm = std::min(least.hbm, static_cast<double>(option.hbm));
    }
    return least;
  }

  // Groups ranks by what never changes: the tables that may use them and the runs of shards that
  // fall on their place.
  void tell_ranks_apart() {
    std::vector<std::vector<std::uint32_t>> marks(ranks_.size());
    for (std::int32_t rank = 0; rank < space_.world; ++rank) {
      auto& mark = marks[rank];
      for (const auto& mask : space_.allowed) mark.push_back(mask[rank] != 0 ? 1 : 0);
      for (const Option& option : space_.options) {
        if (option.spread == Spread::kEverywhere) mark.push_back(run_index(option, rank));
        if (option.spread != Spread::kHostBlocks) continue;
        const std::int32_t place = rank % space_.local_world;
        for (std::int32_t piece = 0; piece < option.pieces; ++piece) {
          mark.push_back(run_index(option, piece * space_.local_world + place));
        }
      }
      const auto same = std::find(marks.begin(), marks.begin() + rank, mark);
      kind_[rank] = static_cast<std::uint32_t>(same - marks.begin());
    }
  }
  std::uint32_t run_index(const Option& option, std::int32_t shard) const {
    return static_cast<std::uint32_t>(&space_.run_of(option, shard) - space_.runs.data());
  }

  bool same_rank(std::int32_t a, std::int32_t b) const {
    return kind_[a] == kind_[b] && ranks_[a] == ranks_[b];
  }
  bool same_host(std::int32_t a, std::int32_t b) const {
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      if (!same_rank(a * space_.local_world + i, b * space_.local_world + i)) return false;
    }
    return true;
  }
  bool is_first_host(std::int32_t host) const {
    for (std::int32_t other = 0; other < host; ++other) {
      if (same_host(other, host)) return false;
    }
    return true;
  }
  bool is_first_rank(std::int32_t rank) const {
    const std::int32_t host = rank / space_.local_world;
    for (std::int32_t other = host * space_.local_world; other < rank; ++other) {
      if (same_rank(other, rank)) return false;
    }
    return true;
  }

  void add(std::int32_t rank, const Run& run, int sign) {
    Rank& to = ranks_[rank];
    for (std::size_t p = 0; p < space_.phases; ++p) {
      to.loads[p] += sign * run.demand.loads[p];
    }
    to.hbm += sign * run.demand.hbm_bytes;
    to.ddr += sign * run.demand.ddr_bytes;
  }

  // Lower bound of all plans that continue this one.
  double bound(std::size_t tables, double of_this_table) const {
    double slowest = 0, all = left_[tables].load + of_this_table;
    for (std::size_t p = 0; p < space_.phases; ++p) {
      double most = space_.floors[p];
      for (const Rank& rank : ranks_) {
        most = std::max(most, rank.loads[p]);
        all += rank.loads[p];
      }
      slowest += most;
    }
    return std::max(slowest, all / space_.world);
  }
  bool is_worse(double bound) const { return bound >= out_.best.objective * (1 - 1e-12); }

  bool give_up() {
    if (!gave_up_ && ++nodes_ > most_nodes_) gave_up_ = true;
    if (!gave_up_ && nodes_ % 1024 == 0 && !go_on_()) gave_up_ = true;
    return gave_up_;
  }

  void place_table(std::size_t index) {
    if (index == order_.size()) {
      double objective = 0;
      for (std::size_t p = 0; p < space_.phases; ++p) {
        double most = space_.floors[p];
        for (const Rank& rank : ranks_) most = std::max(most, rank.loads[p]);
        objective += most;
      }
      layout_.objective = objective;
      if (!is_worse(objective)) {
        out_.best = layout_;
        out_.improved = true;
      }
      return;
    }
    const std::uint32_t table = order_[index];
    const Choice& choice = space_.choices[space_.choice_of[table]];
    std::uint32_t first = choice.first_option;
    if (index > 0 && space_.choice_of[order_[index - 1]] == space_.choice_of[table]) {
      first = layout_.option[order_[index - 1]];
    }
    for (std::uint32_t o = first; o < choice.first_option + choice.options; ++o) {
      if (give_up()) return;
      const Option& option = space_.options[o];
      if (is_worse(option.least_objective) || is_worse(bound(index + 1, option.load))) continue;
      if (lacks_memory(index, option)) continue;
      layout_.option[table] = o;
      if (option.spread == Spread::kEverywhere) {
        place_everywhere(index, option);
      } else {
        place_piece(index, option, 0, option.load);
      }
    }
  }

  bool lacks_memory(std::size_t index, const Option& option) const {
    double needed = left_[index + 1].hbm + static_cast<double>(option.hbm);
    for (const Rank& rank : ranks_) needed += static_cast<double>(rank.hbm);
    return needed > static_cast<double>(space_.hbm_cap) * space_.world * (1 + 1e-12);
  }

  void place_everywhere(std::size_t index, const Option& option) {
    const std::vector<Rank> before = ranks_;
    bool room = true;
    for (std::int32_t rank = 0; rank < space_.world; ++rank) {
      add(rank, space_.run_of(option, rank), 1);
      room = room && has_room(rank);
    }
    if (room && !is_worse(bound(index + 1, 0))) place_table(index + 1);
    ranks_ = before;
  }

  bool has_room(std::int32_t rank) const {
    return ranks_[rank].hbm <= space_.hbm_cap && ranks_[rank].ddr <= space_.ddr_cap;
  }

  // `left`: load of this piece and the following ones.
  void place_piece(std::size_t index, const Option& option, std::int32_t piece, double left) {
    const std::uint32_t table = order_[index];
    std::int32_t* where = layout_.where.data() + space_.first_place[table];
    if (piece == option.pieces) {
      const std::vector<std::int32_t> places(where, where + piece);
      std::vector<Rank> before = ranks_;
      for (Rank& rank : ranks_) rank.used = false;
      place_table(index + 1);
      ranks_ = std::move(before);
      std::copy(places.begin(), places.end(), where);
      return;
    }
    const bool blocks = option.spread == Spread::kHostBlocks;
    const bool alike = piece > 0 && option.runs == 1;  // as the piece before
    const std::int32_t begin = alike ? where[piece - 1] + 1 : 0;
    const std::int32_t end = blocks ? space_.hosts : space_.world;
    for (std::int32_t to = begin; to < end; ++to) {
      if (give_up()) return;
      if (!(blocks ? may_take_host(table, to) : may_take_rank(table, option, piece, to))) continue;
      where[piece] = to;
      const double rest = put(option, piece, to, 1, left);
      if (rest >= 0 && !is_worse(bound(index + 1, rest))) {
        place_piece(index, option, piece + 1, rest);
      }
      put(option, piece, to, -1, left);
    }
  }

  bool may_take_host(std::uint32_t table, std::int32_t host) const {
    return !ranks_[host * space_.local_world].used &&
           space_.may_use_host(space_.choices[space_.choice_of[table]], host) &&
           is_first_host(host);
  }
  bool may_take_rank(std::uint32_t table, const Option& option, std::int32_t piece,
                     std::int32_t rank) const {
    if (ranks_[rank].used || !space_.may_use(space_.choices[space_.choice_of[table]], rank)) {
      return false;
    }
    const std::int32_t host = rank / space_.local_world;
    if (option.spread == Spread::kOneHost && piece > 0 &&
        host != layout_.where[space_.first_place[table]] / space_.local_world) {
      return false;
    }
    return is_first_rank(rank) && is_first_host(host);
  }

  // Returns the load that is then left to place; below 0: there is no room.
  double put(const Option& option, std::int32_t piece, std::int32_t to, int sign, double left) {
    const bool blocks = option.spread == Spread::kHostBlocks;
    const std::int32_t count = blocks ? space_.local_world : 1;
    bool room = true;
    double load = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t rank = to * count + i;
      const Run& run = space_.run_of(option, piece * count + i);
      add(rank, run, sign);
      ranks_[rank].used = sign > 0;
      room = room && has_room(rank);
      load += run.load;
    }
    return room ? std::max(0.0, left - load) : -1;
  }

  const FlatSpace& space_;
  const std::uint64_t most_nodes_;
  const std::function<bool()>& go_on_;
  std::vector<std::uint32_t> order_;
  std::vector<Least> left_;  // for the tables from here on
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> kind_;
  Layout layout_;
  ExactOutcome out_;
  std::uint64_t nodes_ = 0;
  bool gave_up_ = false;
};

}  // namespace

bool is_small(const FlatSpace& space) {
  constexpr std::size_t kMostTables = 12;
  constexpr std::int32_t kMostRanks = 16;
  constexpr double kMostDigits = 18;  // in the number of plans, alike ones counted
  if (space.choice_of.size() > kMostTables || space.world > kMostRanks) return false;
  double digits = 0;
  for (std::uint32_t c : space.choice_of) {
    double places = 0;
    for (std::uint32_t o = 0; o < space.choices[c].options; ++o) {
      const Option& option = space.options[space.choices[c].first_option + o];
      places +=
          std::pow(option.spread == Spread::kHostBlocks ? space.hosts : space.world, option.pieces);
    }
    digits += std::log10(places);
  }
  return digits <= kMostDigits;
}

ExactOutcome enumerate(const FlatSpace& space, const Layout& best, std::uint64_t most_nodes,
                       const std::function<bool()>& go_on) {
  return Enumeration(space, best, most_nodes, go_on).run();
}

}  // namespace perfmodel::sharding::search
