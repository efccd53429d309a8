#pragma once

#include <cstdint>
#include <vector>

#include "plan_search_ranks.hpp"
#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

/// A piece that goes to another rank or host.
struct Shift {
  std::uint32_t place;
  std::int32_t to;
};
/// A table that is cut in another way.
struct Retyped {
  std::uint32_t table, option;
  std::uint32_t places = 0;  ///< the first of its new places
};

/// A plan that is changed move by move: the place of every piece, and the pieces at each place.
template <std::size_t kPhases>
class Moves {
 public:
  Moves(const FlatSpace& space, Random& random)
      : ranks(space),
        space_(space),
        random_(&random),
        table_of_place_(space.places),
        slot_(space.places),
        at_(space.world + space.hosts),
        used_(space.world, 0),
        new_where_(2 * static_cast<std::size_t>(space.world)) {
    for (std::uint32_t t = 0; t < space.choice_of.size(); ++t) {
      const Choice& choice = space.choices[space.choice_of[t]];
      for (std::int32_t k = 0; k < choice.most_pieces; ++k) {
        table_of_place_[space.first_place[t] + static_cast<std::uint32_t>(k)] = t;
      }
      if (choice.options > 1) changeable_.push_back(t);
    }
  }

  void use(Random& random) { random_ = &random; }

  void load(const Layout& layout) {
    now_ = layout;
    now_.mix = mix_of(layout);
    for (auto& places : at_) places.clear();
    located_ = 0;
    ranks.clear();
    for (std::uint32_t t = 0; t < now_.option.size(); ++t) {
      add_table(space_.options[now_.option[t]], where(t), 1);
      enter(t);
    }
  }
  const Layout& layout() const { return now_; }

  /// A random change of ranks, not yet kept. False: nothing changed.
  bool propose() {
    shifts_.clear();
    retyped_.clear();
    const double kind = random_->uniform();
    if (located_ == 0 || (kind < 0.25 && !changeable_.empty())) return propose_option();
    if (kind < 0.35 && changeable_.size() > 1) return propose_exchange();
    const std::uint32_t place = pick_place();
    if (kind < 0.7) return propose_relocation(place);
    return propose_swap(place);
  }

  void keep() {
    for (const Shift& shift : shifts_) {
      leave(shift.place);
      now_.where[shift.place] = shift.to;
      enter_place(shift.place);
    }
    for (const Retyped& change : retyped_) leave_table(change.table);
    for (const Retyped& change : retyped_) {
      const std::uint32_t first = space_.first_place[change.table];
      now_.mix += mix_of(change.option) - mix_of(now_.option[change.table]);
      now_.option[change.table] = change.option;
      for (std::int32_t k = 0; k < space_.options[change.option].pieces; ++k) {
        now_.where[first + at(k)] = new_where_[change.places + at(k)];
      }
      enter(change.table);
    }
    ranks.keep();
  }
  void take_back() { ranks.take_back(); }

  Ranks<kPhases> ranks;

 private:
  static std::uint32_t at(std::int32_t i) { return static_cast<std::uint32_t>(i); }
  const Option& option_of(std::uint32_t table) const { return space_.options[now_.option[table]]; }
  const Choice& choice_of(std::uint32_t table) const {
    return space_.choices[space_.choice_of[table]];
  }
  const std::int32_t* where(std::uint32_t table) const {
    return now_.where.data() + space_.first_place[table];
  }
  std::int32_t piece_of(std::uint32_t place) const {
    return static_cast<std::int32_t>(place - space_.first_place[table_of_place_[place]]);
  }

  // ---- which pieces lie where

  std::vector<std::uint32_t>& list_of(std::uint32_t place) {
    const bool block = option_of(table_of_place_[place]).spread == Spread::kHostBlocks;
    return at_[at(now_.where[place] + (block ? space_.world : 0))];
  }
  void enter_place(std::uint32_t place) {
    auto& list = list_of(place);
    slot_[place] = static_cast<std::uint32_t>(list.size());
    list.push_back(place);
  }
  void leave(std::uint32_t place) {
    auto& list = list_of(place);
    list[slot_[place]] = list.back();
    slot_[list.back()] = slot_[place];
    list.pop_back();
  }
  void enter(std::uint32_t table) {
    const std::int32_t pieces = option_of(table).pieces;
    for (std::int32_t k = 0; k < pieces; ++k) enter_place(space_.first_place[table] + at(k));
    located_ += pieces;
  }
  void leave_table(std::uint32_t table) {
    const std::int32_t pieces = option_of(table).pieces;
    for (std::int32_t k = 0; k < pieces; ++k) leave(space_.first_place[table] + at(k));
    located_ -= pieces;
  }

  // ---- loads

  void add_piece(const Option& option, std::int32_t piece, std::int32_t place, int sign) {
    if (option.spread != Spread::kHostBlocks) {
      ranks.add(place, space_.run_of(option, piece).demand, sign);
      return;
    }
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      ranks.add(place * space_.local_world + i,
                space_.run_of(option, piece * space_.local_world + i).demand, sign);
    }
  }
  void add_table(const Option& option, const std::int32_t* places, int sign) {
    if (option.spread == Spread::kEverywhere) return ranks.add_everywhere(option, sign);
    for (std::int32_t k = 0; k < option.pieces; ++k) add_piece(option, k, places[k], sign);
  }
  void shift(std::uint32_t place, std::int32_t to) {
    const Option& option = option_of(table_of_place_[place]);
    add_piece(option, piece_of(place), now_.where[place], -1);
    add_piece(option, piece_of(place), to, 1);
    shifts_.push_back({place, to});
  }

  // ---- what to move

  std::int32_t any(std::int64_t count) {
    return static_cast<std::int32_t>(random_->below(static_cast<std::size_t>(count)));
  }
  std::int32_t slow_rank() {
    const std::size_t phase = kPhases == 1 ? 0 : random_->below(kPhases);
    if (random_->chance(0.4)) return ranks.slowest(phase);
    std::int32_t slow = any(space_.world);
    if (random_->chance(0.3)) return slow;
    for (int i = 0; i < 3; ++i) {
      const std::int32_t other = any(space_.world);
      if (ranks.load(phase, other) > ranks.load(phase, slow)) slow = other;
    }
    return slow;
  }

  // A piece on a slow rank or on its host.
  std::uint32_t pick_place() {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const std::int32_t rank = slow_rank();
      const auto& here = at_[at(rank)];
      const auto& blocks = at_[at(space_.world + rank / space_.local_world)];
      if (here.empty() && blocks.empty()) continue;
      const std::uint32_t i = random_->below(here.size() + blocks.size());
      return i < here.size() ? here[i] : blocks[i - here.size()];
    }
    for (;;) {
      const auto& here = at_[random_->below(at_.size())];
      if (!here.empty()) return here[random_->below(here.size())];
    }
  }

  int some_samples() { return 1 + static_cast<int>(random_->below(6)); }
  // The lightest of a few ranks or hosts.
  template <class Load>
  std::int32_t light_one(std::int64_t count, Load load) {
    const int samples = some_samples();
    std::int32_t light = any(count);
    for (int i = 1; i < samples; ++i) {
      const std::int32_t other = any(count);
      if (load(other) < load(light)) light = other;
    }
    return light;
  }
  std::int32_t light_rank() {
    return light_one(space_.world, [&](std::int32_t rank) { return ranks.load(rank); });
  }
  double host_load(std::int32_t host) const {
    double most = 0;
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      most = std::max(most, ranks.load(host * space_.local_world + i));
    }
    return most;
  }
  std::int32_t light_host() {
    return light_one(space_.hosts, [&](std::int32_t host) { return host_load(host); });
  }

  bool may_use(const Choice& choice, Spread spread, std::int32_t there) const {
    return spread == Spread::kHostBlocks ? space_.may_use_host(choice, there)
                                         : space_.may_use(choice, there);
  }

  // May this piece be placed there if its table's other pieces stay?
  bool may_lie(std::uint32_t place, std::int32_t there) const {
    const std::uint32_t table = table_of_place_[place];
    const Option& option = option_of(table);
    if (!may_use(choice_of(table), option.spread, there)) return false;
    if (option.spread == Spread::kOneHost &&
        there / space_.local_world != now_.where[place] / space_.local_world) {
      return false;
    }
    const std::int32_t* others = where(table);
    for (std::int32_t k = 0; k < option.pieces; ++k) {
      if (others[k] == there) return false;
    }
    return true;
  }

  bool propose_relocation(std::uint32_t place) {
    const Option& option = option_of(table_of_place_[place]);
    if (option.spread == Spread::kOneHost && random_->chance(0.6)) {
      return propose_other_host(table_of_place_[place]);
    }
    std::int32_t to = 0;
    if (option.spread == Spread::kHostBlocks) {
      to = light_host();
    } else if (option.spread == Spread::kOneHost) {
      to = now_.where[place] / space_.local_world * space_.local_world + any(space_.local_world);
    } else {
      to = light_rank();
    }
    if (!may_lie(place, to)) return false;
    shift(place, to);
    return true;
  }

  bool propose_other_host(std::uint32_t table) {
    const Option& option = option_of(table);
    const std::int32_t host = light_host();
    if (host == where(table)[0] / space_.local_world) return false;
    if (!spread_on(option, choice_of(table), host * space_.local_world, space_.local_world)) {
      return false;
    }
    for (std::int32_t k = 0; k < option.pieces; ++k) {
      shift(space_.first_place[table] + at(k), new_where_[at(k)]);
    }
    return true;
  }

  bool propose_swap(std::uint32_t place) {
    const std::uint32_t table = table_of_place_[place];
    const bool block = option_of(table).spread == Spread::kHostBlocks;
    const std::int32_t here = now_.where[place];
    const std::int32_t there = block ? light_host() : light_rank();
    const auto& list = at_[at(there + (block ? space_.world : 0))];
    if (there == here || list.empty()) return false;
    const std::uint32_t other = list[random_->below(list.size())];
    const std::uint32_t other_table = table_of_place_[other];
    if (other_table == table) return false;
    if (now_.option[table] == now_.option[other_table] && option_of(table).runs == 1) return false;
    if (!may_lie(place, there) || !may_lie(other, here)) return false;
    shift(place, there);
    shift(other, here);
    return true;
  }

  bool propose_option() {
    if (changeable_.empty()) return false;
    const std::uint32_t table = changeable_table();
    const Choice& choice = choice_of(table);
    const std::uint32_t old = now_.option[table] - choice.first_option;
    std::uint32_t next = random_->below(choice.options - 1);
    if (next >= old) ++next;
    if (choice.options > 8 && random_->chance(0.7)) {  // as many splits, about
      const auto step = 1 + random_->below(3);
      next = random_->chance(0.5) ? old + step : old - step;
      if (next >= choice.options) return false;
    }
    const Option& option = space_.options[choice.first_option + next];
    add_table(option_of(table), where(table), -1);
    if (!spread_out(option, choice)) {
      ranks.take_back();
      return false;
    }
    add_table(option, new_where_.data(), 1);
    retyped_.push_back({table, choice.first_option + next});
    return true;
  }

  std::uint32_t changeable_table() {
    if (located_ > 0 && random_->chance(0.6)) {
      const std::uint32_t slow = table_of_place_[pick_place()];
      if (choice_of(slow).options > 1) return slow;
    }
    return changeable_[random_->below(changeable_.size())];
  }

  // Two tables trade the ways they are cut, and their places.
  bool propose_exchange() {
    const std::uint32_t a = changeable_table(), b = changeable_[random_->below(changeable_.size())];
    if (a == b || now_.option[a] == now_.option[b]) return false;
    const std::int64_t for_a = as(choice_of(a), option_of(b));
    const std::int64_t for_b = as(choice_of(b), option_of(a));
    if (for_a < 0 || for_b < 0) return false;
    if (!may_take_places(a, b) || !may_take_places(b, a)) return false;
    const auto place = static_cast<std::uint32_t>(space_.world);
    retyped_.push_back({a, static_cast<std::uint32_t>(for_a), 0});
    retyped_.push_back({b, static_cast<std::uint32_t>(for_b), place});
    std::copy_n(where(b), option_of(b).pieces, new_where_.begin());
    std::copy_n(where(a), option_of(a).pieces, new_where_.begin() + place);
    add_table(option_of(a), where(a), -1);
    add_table(option_of(b), where(b), -1);
    for (const Retyped& change : retyped_) {
      add_table(space_.options[change.option], new_where_.data() + change.places, 1);
    }
    return true;
  }

  // Any of the options that are placed like `other`; -1: none.
  std::int64_t as(const Choice& choice, const Option& other) {
    std::int64_t found = -1;
    std::size_t matches = 0;
    for (std::uint32_t o = choice.first_option; o < choice.first_option + choice.options; ++o) {
      const Option& option = space_.options[o];
      if (option.spread != other.spread || option.pieces != other.pieces) continue;
      if (random_->below(++matches) == 0) found = o;
    }
    return found;
  }
  bool may_take_places(std::uint32_t table, std::uint32_t from) const {
    const Choice& choice = choice_of(table);
    if (choice.mask < 0) return true;
    const Option& option = option_of(from);
    for (std::int32_t k = 0; k < option.pieces; ++k) {
      if (!may_use(choice, option.spread, where(from)[k])) return false;
    }
    return true;
  }
  // Light places for all pieces, into new_where_.
  bool spread_out(const Option& option, const Choice& choice) {
    if (option.spread == Spread::kEverywhere) return true;
    if (option.spread == Spread::kFree) return spread_on(option, choice, 0, space_.world);
    if (option.spread == Spread::kOneHost) {
      return spread_on(option, choice, light_host() * space_.local_world, space_.local_world);
    }
    ++now_used_;
    for (std::int32_t k = 0; k < option.pieces; ++k) {
      const std::int32_t start = light_host();
      std::int32_t host = start;
      while (used_[at(host)] == now_used_ || !space_.may_use_host(choice, host)) {
        host = host + 1 == space_.hosts ? 0 : host + 1;
        if (host == start) return false;
      }
      used_[at(host)] = now_used_;
      new_where_[at(k)] = host;
    }
    return true;
  }

  bool spread_on(const Option& option, const Choice& choice, std::int32_t first,
                 std::int32_t count) {
    ++now_used_;
    const int samples = some_samples();
    for (std::int32_t k = 0; k < option.pieces; ++k) {
      const Run& run = space_.run_of(option, k);
      std::int32_t best = -1;
      double least = 0;
      const auto good = [&](std::int32_t rank) {
        return used_[at(rank)] != now_used_ && space_.may_use(choice, rank);
      };
      for (int i = 0; i < samples; ++i) {
        const std::int32_t rank = first + any(count);
        if (!good(rank)) continue;
        double load = ranks.load(rank);
        if (!ranks.has_room(rank, run.demand)) load += kFull;
        if (best < 0 || load < least) best = rank, least = load;
      }
      if (best < 0) {  // the first good one from anywhere
        const std::int32_t start = any(count);
        for (std::int32_t i = 0; i < count && best < 0; ++i) {
          const std::int32_t rank = first + (start + i) % count;
          if (good(rank)) best = rank;
        }
        if (best < 0) return false;
      }
      used_[at(best)] = now_used_;
      new_where_[at(k)] = best;
    }
    return true;
  }

  static constexpr double kFull = 1e300;  // after all ranks that have room

  const FlatSpace& space_;
  Random* random_;
  Layout now_;
  std::vector<std::uint32_t> table_of_place_, slot_;
  std::vector<std::vector<std::uint32_t>> at_;  // per rank, then per host: places
  std::int64_t located_ = 0;                    // pieces
  std::vector<std::uint32_t> changeable_;       // tables with several options
  std::vector<std::uint64_t> used_;             // ranks or hosts, by now_used_
  std::uint64_t now_used_ = 0;
  std::vector<std::int32_t> new_where_;
  std::vector<Shift> shifts_;
  std::vector<Retyped> retyped_;
};

}  // namespace perfmodel::sharding::search
