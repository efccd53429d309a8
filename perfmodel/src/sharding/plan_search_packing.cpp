#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "plan_search_seeds.hpp"

namespace perfmodel::sharding::search {

Packing::Packing(const FlatSpace& space)
    : space_(space),
      load_(space.world),
      demand_(space.world),
      used_(space.world),
      order_(space.choice_of.size()),
      keys_(order_.size()),
      leaves_(std::bit_ceil(static_cast<std::size_t>(space.world))),
      lightest_(2 * leaves_) {}

void Packing::clear() {
  std::fill(load_.begin(), load_.end(), 0.0);
  std::fill(demand_.begin(), demand_.end(), ShardDemand{});
  std::fill(used_.begin(), used_.end(), 0U);
  now_ = 0;
  is_sorted_ = false;
  is_alike_ = true;
}

// Tables on every rank come first: as long as there are no others, the first rank counts for all.
void Packing::tell_ranks_apart() {
  if (!is_alike_) return;
  is_alike_ = false;
  std::fill(load_.begin() + 1, load_.end(), load_.front());
  std::fill(demand_.begin() + 1, demand_.end(), demand_.front());
}

// The lighter child of a node, the first one if they are alike.
const Packing::RankLoad& Packing::lighter_below(std::size_t node) const {
  const RankLoad &a = lightest_[2 * node], &b = lightest_[2 * node + 1];
  return b.load < a.load ? b : a;
}

void Packing::seed_tree() {
  for (std::int32_t rank = 0; rank < space_.world; ++rank) {
    lightest_[leaves_ + rank] = {load_[rank], rank};
  }
  for (std::size_t node = leaves_ - 1; node > 0; --node) lightest_[node] = lighter_below(node);
  is_sorted_ = true;
}

// Puts a rank into the tree, or takes it out.
void Packing::set_leaf(std::int32_t rank, bool is_in) {
  std::size_t node = leaves_ + static_cast<std::size_t>(rank);
  RankLoad next = is_in ? RankLoad{load_[rank], rank} : RankLoad{};
  lightest_[node] = next;
  for (; node > 1; node /= 2) {
    const RankLoad& sibling = lightest_[node ^ 1];
    const bool is_second = node % 2 == 1;
    const bool is_lighter =
        is_second ? next.load < sibling.load : !(sibling.load < next.load);  // first if alike
    if (!is_lighter) next = sibling;
    RankLoad& above = lightest_[node / 2];
    if (next.rank == above.rank && next.rank != rank) return;  // as all nodes above it
    above = next;
  }
}

// Like best_rank() of all ranks for each shard, by a tree of the lightest ones.
bool Packing::place_on_lightest(const Option& option, const Choice& choice, std::int32_t* where) {
  constexpr std::size_t kMostRefused = 8;  // more than these are found faster by looking at all
  if (!is_sorted_) seed_tree();
  std::int32_t piece = 0;
  for (; piece < option.pieces; ++piece) {
    const Run& run = space_.run_of(option, piece);
    refused_.clear();
    std::int32_t rank = lightest_[1].rank;
    const auto has_room = [&] { return space_.may_use(choice, rank) && fits(rank, run.demand); };
    for (; rank >= 0 && !has_room() && refused_.size() < kMostRefused; rank = lightest_[1].rank) {
      refused_.push_back(rank);
      set_leaf(rank, false);
    }
    if (rank >= 0 && !has_room()) rank = best_rank(choice, 0, space_.world, run, false);
    for (const std::int32_t other : refused_) set_leaf(other, true);
    if (rank < 0) break;
    where[piece] = rank;
    used_[rank] = now_;
    if (piece + 1 < option.pieces) set_leaf(rank, false);
    add(rank, run, 1);
  }
  for (std::int32_t k = 0; k < piece; ++k) set_leaf(where[k], true);
  return piece == option.pieces;
}

bool Packing::pack(Layout& layout, Order order, bool may_overflow) {
  clear();
  std::iota(order_.begin(), order_.end(), 0U);
  for (std::size_t table = 0; table < keys_.size(); ++table) {
    const Option& option = space_.options[layout.option[table]];
    keys_[table] = option.spread == Spread::kEverywhere ? std::numeric_limits<double>::max()
                   : order == Order::kLongestFirst      ? option.largest
                                                        : static_cast<double>(option.hbm_max);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return keys_[a] > keys_[b]; });
  layout.where.resize(space_.places);
  for (std::uint32_t table : order_) {
    if (!place(layout, table, layout.where.data() + space_.first_place[table], may_overflow)) {
      return false;
    }
  }
  tell_ranks_apart();
  layout.objective = objective();
  return true;
}

bool Packing::place(const Layout& layout, std::uint32_t table, std::int32_t* where,
                    bool may_overflow) {
  const Option& option = space_.options[layout.option[table]];
  const Choice& choice = space_.choices[space_.choice_of[table]];
  ++now_;
  if (option.spread == Spread::kEverywhere) return place_everywhere(option, may_overflow);
  tell_ranks_apart();
  switch (option.spread) {
    case Spread::kEverywhere: break;
    case Spread::kHostBlocks: return place_blocks(option, choice, where, may_overflow);
    case Spread::kFree:
    case Spread::kOneHost: return place_shards(option, choice, where, may_overflow);
  }
  return false;
}

bool Packing::place_everywhere(const Option& option, bool may_overflow) {
  bool good = true;
  is_sorted_ = false;
  const Run& first = space_.runs[option.first_run];
  const bool is_same_on_all = first.begin == 0 && first.end == space_.world;
  if (is_alike_ && is_same_on_all) {
    good = fits(0, first.demand);
    add(0, first, 1);
    return good || may_overflow;
  }
  tell_ranks_apart();
  for (std::uint32_t i = 0; i < option.runs; ++i) {
    const Run run = space_.runs[option.first_run + i];
    for (std::int32_t rank = run.begin; rank < run.end; ++rank) {
      good = good && fits(rank, run.demand);
      add(rank, run, 1);
    }
  }
  return good || may_overflow;
}

bool Packing::place_blocks(const Option& option, const Choice& choice, std::int32_t* where,
                           bool may_overflow) {
  is_sorted_ = false;
  for (std::int32_t piece = 0; piece < option.pieces; ++piece) {
    block_.clear();
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      block_.push_back(&space_.run_of(option, piece * space_.local_world + i));
    }
    const std::int32_t host = best_host(choice, may_overflow);
    if (host < 0) return false;
    where[piece] = host;
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      const std::int32_t rank = host * space_.local_world + i;
      add(rank, *block_[i], 1);
      used_[rank] = now_;
    }
  }
  return true;
}

// Lightest at its slowest rank; if nothing fits, fullest ranks last.
std::int32_t Packing::best_host(const Choice& choice, bool may_overflow) const {
  std::int32_t best = -1, emptiest = -1;
  double least = std::numeric_limits<double>::max(), fewest = least;
  for (std::int32_t host = 0; host < space_.hosts; ++host) {
    const std::int32_t first = host * space_.local_world;
    if (!space_.may_use_host(choice, host) || used_[first] == now_) continue;
    bool room = true;
    double slowest = 0, bytes = 0;
    for (std::int32_t i = 0; i < space_.local_world; ++i) {
      const Run& run = *block_[i];
      slowest = std::max(slowest, load_[first + i] + run.load);
      bytes = std::max(bytes, static_cast<double>(demand_[first + i].hbm_bytes));
      room = room && fits(first + i, run.demand);
    }
    if (room && slowest < least) least = slowest, best = host;
    if (bytes < fewest) fewest = bytes, emptiest = host;
  }
  return best < 0 && may_overflow ? emptiest : best;
}

bool Packing::place_shards(const Option& option, const Choice& choice, std::int32_t* where,
                           bool may_overflow) {
  constexpr std::int32_t kManyRanks = 32;
  if (option.spread == Spread::kFree && !may_overflow && space_.world >= kManyRanks) {
    return place_on_lightest(option, choice, where);
  }
  is_sorted_ = false;
  const auto place_within = [&](std::int32_t begin, std::int32_t end) {
    std::int32_t piece = 0;
    double slowest = 0;
    for (; piece < option.pieces; ++piece) {
      const Run& run = space_.run_of(option, piece);
      const std::int32_t rank = best_rank(choice, begin, end, run, may_overflow);
      if (rank < 0) break;
      where[piece] = rank;
      used_[rank] = now_;
      add(rank, run, 1);
      slowest = std::max(slowest, load_[rank]);
    }
    return std::pair(piece, slowest);
  };
  const auto take_back = [&](std::int32_t pieces) {
    for (std::int32_t piece = 0; piece < pieces; ++piece) {
      add(where[piece], space_.run_of(option, piece), -1);
      used_[where[piece]] = 0;
    }
  };
  if (option.spread == Spread::kFree) {
    return place_within(0, space_.world).first == option.pieces;
  }
  std::int32_t best = -1;
  double least = std::numeric_limits<double>::max();
  for (std::int32_t host = 0; host < space_.hosts; ++host) {
    const std::int32_t first = host * space_.local_world;
    const auto [pieces, slowest] = place_within(first, first + space_.local_world);
    if (pieces == option.pieces && slowest < least) least = slowest, best = host;
    take_back(pieces);
  }
  if (best < 0) return false;
  place_within(best * space_.local_world, (best + 1) * space_.local_world);
  return true;
}

std::int32_t Packing::best_rank(const Choice& choice, std::int32_t begin, std::int32_t end,
                                const Run& run, bool may_overflow) const {
  const auto is_free = [&](std::int32_t rank) {
    return used_[rank] != now_ && space_.may_use(choice, rank);
  };
  std::int32_t best = -1, emptiest = -1;
  double least = std::numeric_limits<double>::max();
  for (std::int32_t rank = begin; rank < end; ++rank) {
    if (load_[rank] >= least || !is_free(rank) || !fits(rank, run.demand)) continue;
    least = load_[rank];
    best = rank;
  }
  if (best >= 0 || !may_overflow) return best;
  for (std::int32_t rank = begin; rank < end; ++rank) {
    const auto is_emptier = [&] { return demand_[rank].hbm_bytes < demand_[emptiest].hbm_bytes; };
    if (is_free(rank) && (emptiest < 0 || is_emptier())) emptiest = rank;
  }
  return emptiest;
}

bool Packing::fits(std::int32_t rank, const ShardDemand& demand) const {
  return demand_[rank].hbm_bytes + demand.hbm_bytes <= space_.hbm_cap &&
         demand_[rank].ddr_bytes + demand.ddr_bytes <= space_.ddr_cap;
}

void Packing::add(std::int32_t rank, const Run& run, int sign) {
  load_[rank] += sign * run.load;
  const ShardDemand more = run.demand;
  ShardDemand& on = demand_[rank];
  for (std::size_t p = 0; p < kMostPhases; ++p) on.loads[p] += sign * more.loads[p];
  on.hbm_bytes += sign * more.hbm_bytes;
  on.ddr_bytes += sign * more.ddr_bytes;
}

double Packing::objective() const {
  double sum = 0;
  for (std::size_t p = 0; p < space_.phases; ++p) {
    double largest = demand_.front().loads[p];
    for (const ShardDemand& on : demand_) largest = std::max(largest, on.loads[p]);
    sum += std::max(space_.floors[p], largest);
  }
  return sum;
}

}  // namespace perfmodel::sharding::search
