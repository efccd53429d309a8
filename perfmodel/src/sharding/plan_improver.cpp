#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "base/contains.hpp"
#include "batch_job.hpp"
#include "batch_schedule.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "plan_search_space.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {

/// A plan whose tables change one by one, priced as time() prices it. Loads of ranks are kept as
/// sums; a change costs the lookups of the ranks that it touches, the exchanges and the schedule.
class BatchModel::ChangedPlan {
 protected:
  struct Score {
    double us = 0, soft = 0, fullest = 0;
    bool fits = true;
  };
  struct Change {
    std::size_t table;
    TablePlacement to;
  };

  ChangedPlan(const BatchModel& model, std::span<const TablePlacement> placements)
      : model_(model), plan_(placements.begin(), placements.end()) {
    const auto ranks = static_cast<std::size_t>(model.world());
    job_.ranks.resize(ranks);
    batch_.ranks.resize(ranks);
    on_rank_.resize(ranks);
  }

  // From scratch: nothing that rounding has left stays.
  Result<void> price_anew() {
    job_ = {};
    job_.ranks.resize(batch_.ranks.size());
    dirty_.assign(batch_.ranks.size(), 1);
    for (std::size_t t = 0; t < plan_.size(); ++t) PERFMODEL_TRY_TO(apply(t, plan_[t], 1));
    PERFMODEL_TRY(score, priced());
    now_ = *score;
    list_tables();
    return {};
  }

  Result<bool> try_changes(const std::vector<Change>& changes, bool if_no_worse = false) {
    const JobLoad job_before = job_;
    std::vector<TablePlacement> before;
    for (const Change& change : changes) {
      before.push_back(plan_[change.table]);
      PERFMODEL_TRY_TO(apply(change.table, plan_[change.table], -1));
      plan_[change.table] = change.to;
      PERFMODEL_TRY_TO(apply(change.table, change.to, 1));
    }
    // The load at home is the same on all ranks.
    if (differ(job_.at_home, job_before.at_home)) {
      std::fill(dirty_.begin(), dirty_.end(), char{1});
    }
    std::vector<std::pair<std::size_t, PartTimes>> parts_before;
    for (std::size_t r = 0; r < dirty_.size(); ++r) {
      if (dirty_[r] != 0) parts_before.emplace_back(r, batch_.ranks[r].parts);
    }
    PERFMODEL_TRY(next, priced());
    if (is_better(*next) || (if_no_worse && is_no_worse(*next))) {
      now_ = *next;
      list_tables();
      // Sums of floating-point numbers that were added and taken away again drift.
      if (++kept_ % kKeptBetweenSums == 0) PERFMODEL_TRY_TO(price_anew());
      return true;
    }
    for (std::size_t i = changes.size(); i-- > 0;) plan_[changes[i].table] = before[i];
    job_ = job_before;
    for (const auto& [rank, parts] : parts_before) batch_.ranks[rank].parts = parts;
    return false;
  }

  bool is_free(std::size_t t) const { return model_.study().tables[t].rules.keep_with.empty(); }

  const BatchModel& model_;
  std::vector<TablePlacement> plan_;
  JobLoad job_;
  BatchTime batch_;
  std::vector<std::vector<std::size_t>> on_rank_;  // tables that may move
  Score now_;

 private:
  static bool touches_all(const TablePlacement& placement) { return placement.ranks.empty(); }

  Result<void> apply(std::size_t table, const TablePlacement& placement, double sign) {
    PERFMODEL_TRY_TO(model_.add(table, placement, job_, sign));
    if (touches_all(placement)) {
      std::fill(dirty_.begin(), dirty_.end(), char{1});
    } else {
      for (const std::int64_t rank : placement.ranks) dirty_[rank] = 1;
    }
    if (sign > 0) return {};
    for (std::size_t r = 0; r < dirty_.size(); ++r) {
      if (dirty_[r] != 0) drop_rest(job_.ranks[r]);
    }
    drop_rest(job_.at_home);
    return {};
  }

  // Sets rounding errors of removed loads to 0.
  static void drop_rest(ShardLoad& load) {
    constexpr double kNothing = 1e-6;  // bytes, ids, bags
    for (std::size_t i = 0; i < static_cast<std::size_t>(Load::kCount); ++i) {
      double& value = load[static_cast<Load>(i)];
      if (value < kNothing) value = 0;
    }
  }

  void list_tables() {
    for (auto& tables : on_rank_) tables.clear();
    for (std::size_t t = 0; t < plan_.size(); ++t) {
      if (!is_free(t)) continue;
      for (const std::int64_t rank : plan_[t].ranks) {
        on_rank_[rank].push_back(t);
      }
    }
  }

  // `us`, and how uneven the ranks are: a plan that is as fast but more even is nearer to a faster.
  Result<Score> priced() {
    PERFMODEL_TRY_TO(model_.set_exchanges(total_job(), batch_));
    Score score;
    std::size_t same = 0;  // a rank with the same loads
    for (std::size_t r = 0; r < batch_.ranks.size(); ++r) {
      ShardLoad load = job_.ranks[r];
      load += array_;
      load += job_.at_home;
      score.fullest = std::max(score.fullest, model_.memory(load).total());
      if (dirty_[r] == 0) continue;
      dirty_[r] = 0;
      if (r > 0 && job_.ranks[r] == job_.ranks[same]) {
        for (const BatchPart part :
             {BatchPart::kPrefetch, BatchPart::kLookupForward, BatchPart::kLookupBackward}) {
          batch_.ranks[r].parts[part] = batch_.ranks[same].parts[part];
        }
      } else {
        model_.set_lookups(load, batch_.ranks[r].parts);
      }
      same = r;
    }
    score.fits = score.fullest <= model_.memory_cap();
    batch_.step = model_.step_work(model_.options_.step, plan_);
    score.us = model_.clock_us(batch_makespan_us(batch_, model_.order()));
    score.soft = score.us + kEvenness * unevenness();
    return score;
  }

  // With the hashed array, which tables share.
  const JobLoad& total_job() {
    array_ = {};
    total_ = JobLoad{};
    if (job_.hashed_tables <= 0) return job_;
    total_ = job_;
    model_.add_hashed_array(total_);
    array_ = hashed_array_load(*model_.study_.hashed, model_.study_.tables.front().optimizer);
    return total_;
  }

  double unevenness() const {
    double sum = 0;
    for (const BatchPart part :
         {BatchPart::kPrefetch, BatchPart::kLookupForward, BatchPart::kLookupBackward}) {
      double most = 0, eighth = 0;
      for (const BatchRank& rank : batch_.ranks) most = std::max(most, rank.parts[part]);
      if (most <= 0) continue;
      for (const BatchRank& rank : batch_.ranks) {
        const double share = rank.parts[part] / most, square = share * share;
        eighth += square * square * square * square;
      }
      sum += most * std::sqrt(std::sqrt(std::sqrt(eighth)));
    }
    return sum;
  }

  bool is_better(const Score& next) const {
    constexpr double kSame = 1e-9;
    if (!next.fits) return !now_.fits && next.fullest < now_.fullest;
    if (!now_.fits) return true;
    if (next.us > now_.us * (1 + kSame)) return false;
    if (next.soft < now_.soft * (1 - kSame)) return true;
    return next.soft <= now_.soft * (1 + kSame) && next.fullest < now_.fullest * (1 - kSame);
  }

  static bool differ(const ShardLoad& a, const ShardLoad& b) {
    constexpr double kRounding = 1e-9;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Load::kCount); ++i) {
      const auto load = static_cast<Load>(i);
      if (std::abs(a[load] - b[load]) > kRounding * std::max(a[load], b[load])) return true;
    }
    return false;
  }

  bool is_no_worse(const Score& next) const {
    constexpr double kSame = 1e-9;
    return (next.fits || !now_.fits) && next.us <= now_.us * (1 + kSame);
  }

  static constexpr double kEvenness = 0.02;
  static constexpr std::uint64_t kKeptBetweenSums = 32;

  JobLoad total_;
  ShardLoad array_;
  std::vector<char> dirty_;
  std::uint64_t kept_ = 0;
};

/// Tries changes of a plan, most of them on the ranks that the others wait for, and keeps the
/// better.
class BatchModel::Improver : ChangedPlan {
 public:
  Improver(const BatchModel& model, std::span<const TablePlacement> placements,
           const ImproveOptions& options)
      : ChangedPlan(model, placements), random_(options.seed), options_(options) {}

  Result<std::vector<TablePlacement>> run() {
    PERFMODEL_TRY_TO(price_anew());
    const std::uint64_t tables = plan_.size();
    // Large plans differ little by any one table, and each try costs as much as a rank has tables.
    const std::uint64_t most = std::min<std::uint64_t>(8000, 400 + 40 * tables);
    const std::uint64_t patience = std::min<std::uint64_t>(most, 100 + 6 * tables);
    if (may_choose() && goes_on()) PERFMODEL_TRY_TO(choose_together());
    constexpr std::uint64_t kTriesPerLook = 1000;
    constexpr double kWorthwhile = 2e-4;
    std::uint64_t failed = 0;
    double least_us = search::kInfinite;  // if it is still slower then, tries end
    for (std::uint64_t i = 0; i < most && failed < patience; ++i) {
      if (i % kTriesPerLook == 0) {
        if (now_.us > least_us) break;
        least_us = now_.fits ? now_.us * (1 - kWorthwhile) : search::kInfinite;
      }
      if (i % 16 == 0 && !goes_on()) break;
      PERFMODEL_TRY(better, attempt());
      failed = *better ? 0 : failed + 1;
    }
    if (may_choose()) PERFMODEL_TRY_TO(leave_as_tables_say());
    return plan_;
  }

 private:
  bool goes_on() const { return !options_.go_on || options_.go_on(); }
  bool may_choose() const { return model_.study().searched.any(); }

  // ---- settings of tables ----------------------------------------------------------------------

  using Wanted = std::function<void(TableSettings&)>;

  // The same shards with other settings; none: the search may not choose those.
  std::optional<TablePlacement> with_settings(std::size_t table, const TablePlacement& from,
                                              const Wanted& change) const {
    TablePlacement to = from;
    change(to.settings);
    if (to == from || !is_free(table)) return std::nullopt;
    TablePlacement plain = to;
    plain.settings = {.cache_share = to.settings.cache_share};
    for (const TablePlacement& variant : model_.variants(table, plain, model_.study().searched)) {
      if (variant == to) return to;
    }
    return std::nullopt;
  }

  Result<bool> change_all(const Wanted& change, bool if_no_worse) {
    std::vector<Change> changes;
    for (std::size_t t = 0; t < plan_.size(); ++t) {
      if (auto to = with_settings(t, plan_[t], change)) changes.push_back({t, std::move(*to)});
    }
    if (changes.empty()) return false;
    return try_changes(changes, if_no_worse);
  }

  // Exchanges wait for their slowest rank: a change of one table may gain nothing although a change
  // of all does.
  Result<void> choose_together() {
    std::vector<Wanted> wanted = {[](TableSettings& s) { s.wire_bytes = 2; },
                                  [](TableSettings& s) { s.deduplicated = true; },
                                  [](TableSettings& s) { s.deduplicated.reset(); },
                                  [](TableSettings& s) { s.wire_bytes.reset(); }};
    for (std::int64_t rows = 100; rows <= 10'000'000 && model_.study().searched.hot_rows;
         rows *= 10) {
      wanted.push_back([rows](TableSettings& s) { s.hot_rows = rows; });
    }
    for (const Wanted& change : wanted) PERFMODEL_TRY_TO(change_all(change, false));
    return {};
  }

  // Drops settings that gain nothing.
  Result<void> leave_as_tables_say() {
    const std::vector<Wanted> wanted = {[](TableSettings& s) { s.wire_bytes.reset(); },
                                        [](TableSettings& s) { s.deduplicated.reset(); },
                                        [](TableSettings& s) { s.hot_rows.reset(); }};
    constexpr std::size_t kMostRanks = 3200;
    const std::size_t most_tables = std::max<std::size_t>(16, kMostRanks / batch_.ranks.size());
    for (const Wanted& change : wanted) {
      PERFMODEL_TRY(left, change_all(change, true));
      if (*left) continue;
      std::size_t tried = 0;
      for (std::size_t t = 0; t < plan_.size() && tried < most_tables && goes_on(); ++t) {
        auto to = with_settings(t, plan_[t], change);
        if (!to) continue;
        ++tried;
        PERFMODEL_TRY_TO(try_changes({{t, std::move(*to)}}, true));
      }
    }
    return {};
  }

  // Other settings of one table.
  Result<bool> other_settings(std::size_t table) {
    TablePlacement plain = plan_[table];
    plain.settings = {.cache_share = plain.settings.cache_share};
    std::vector<TablePlacement> variants = model_.variants(table, plain, model_.study().searched);
    TablePlacement& to = variants[random_.below(variants.size())];
    if (to == plan_[table]) return false;
    return try_changes({{table, std::move(to)}});
  }

  double load_us(std::size_t rank) const {
    const PartTimes& parts = batch_.ranks[rank].parts;
    return parts[BatchPart::kLookupForward] + parts[BatchPart::kLookupBackward] +
           parts[BatchPart::kPrefetch];
  }

  double load_of(std::size_t rank, std::size_t by) const {
    const PartTimes& parts = batch_.ranks[rank].parts;
    const ShardLoad& of = job_.ranks[rank];
    switch (by) {
      case 0: return parts[BatchPart::kLookupForward];
      case 1: return parts[BatchPart::kLookupBackward];
      case 2: return of[Load::kVectorBytes] + of[Load::kHostSumBytes];
      case 3: return parts[BatchPart::kPrefetch];
      case 4: return of.hbm_bytes();
      default: return load_us(rank);
    }
  }

  // The rank that the others wait for: by lookups, by sent bytes, by fetched bytes, by memory.
  std::size_t slow_rank() {
    const std::size_t by = random_.below(6);
    std::size_t slow = 0;
    double most = load_of(0, by);
    for (std::size_t r = 1; r < batch_.ranks.size(); ++r) {
      const double load = load_of(r, by);
      if (load > most) {
        most = load;
        slow = r;
      }
    }
    return slow;
  }

  std::size_t pick_table(std::size_t rank) {
    const auto& here = on_rank_[rank];
    const bool any = here.empty() || random_.below(4) == 0;
    return any ? random_.below(plan_.size()) : here[random_.below(here.size())];
  }

  bool may_use(std::size_t table, std::int64_t rank) const {
    return !contains(model_.study().tables[table].rules.forbidden_ranks, rank);
  }

  std::vector<std::int64_t> lightest_ranks() const {
    std::vector<std::int64_t> ranks(batch_.ranks.size());
    std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::int64_t a, std::int64_t b) {
      return load_us(static_cast<std::size_t>(a)) < load_us(static_cast<std::size_t>(b));
    });
    return ranks;
  }

  Result<bool> attempt() {
    const std::size_t rank = slow_rank();
    const std::size_t table = pick_table(rank);
    if (!is_free(table)) return false;
    // Most settings touch the work of every rank at home: with many ranks fewer of them are tried.
    const std::uint64_t seldom = std::max<std::uint64_t>(4, batch_.ranks.size() / 4);
    if (may_choose() && random_.below(seldom) == 0) return other_settings(table);
    const std::uint64_t kind = random_.below(3);
    if (kind == 0) return other_way(table);
    if (plan_[table].ranks.empty()) return other_way(table);
    return kind == 1 ? move(table, rank) : swap(table, rank);
  }

  // Each type is as likely as any other, however many kernels, caches and widths it comes with.
  TablePlacement any_way(std::size_t table) {
    std::vector<TablePlacement> ways = model_.ways(model_.study().tables[table]);
    std::vector<ShardingType> types;
    for (const TablePlacement& way : ways) add_once(types, way.type);
    const ShardingType type = types[random_.below(types.size())];
    std::erase_if(ways, [&](const TablePlacement& way) { return way.type != type; });
    return ways[random_.below(ways.size())];
  }

  // Another way to cut the table, on the lightest ranks.
  Result<bool> other_way(std::size_t table) {
    TablePlacement way = any_way(table);
    std::size_t shards = way.ranks.size();
    if (shards == 0) {
      PERFMODEL_TRY(sizes, model_.sizes(table, way));
      shards = sizes->size();
    }
    way.ranks.clear();
    if (way.type != ShardingType::kDataParallel) {
      const auto share = way.settings.cache_share;
      way.settings = plan_[table].settings;
      way.settings.cache_share = share;
    }
    if (!choose_ranks(table, shards, way) || way == plan_[table]) return false;
    return try_changes({{table, std::move(way)}});
  }

  // False: there are not enough that it may use.
  bool choose_ranks(std::size_t table, std::size_t shards, TablePlacement& way) const {
    using enum ShardingType;
    if (way.type == kRowWise || way.type == kDataParallel) {
      return model_.study().tables[table].rules.forbidden_ranks.empty();
    }
    const std::vector<std::int64_t> ranks = lightest_ranks();
    const std::int64_t local = model_.local_world();
    if (way.type == kTableRowWise || way.type == kGrid || way.type == kHostRowSplit) {
      std::vector<std::int64_t> hosts;
      for (const std::int64_t rank : ranks) {
        if (way.ranks.size() >= shards) break;
        const std::int64_t host = rank / local;
        if (contains(hosts, host)) continue;
        hosts.push_back(host);
        for (std::int64_t i = 0; i < local; ++i) way.ranks.push_back(host * local + i);
      }
    } else {
      for (const std::int64_t rank : ranks) {
        if (way.ranks.size() == shards) break;
        const bool elsewhere =
            way.type == kTableColumnWise && rank / local != ranks.front() / local;
        if (!elsewhere && may_use(table, rank)) way.ranks.push_back(rank);
      }
    }
    return way.ranks.size() == shards &&
           std::all_of(way.ranks.begin(), way.ranks.end(),
                       [&](std::int64_t rank) { return may_use(table, rank); });
  }

  static bool moves_alone(ShardingType type) {
    return type == ShardingType::kTableWise || type == ShardingType::kColumnWise ||
           type == ShardingType::kRowSplit;
  }

  // One shard to a light rank that has none of the table.
  Result<bool> move(std::size_t table, std::size_t from) {
    TablePlacement to = plan_[table];
    if (!moves_alone(to.type)) return false;
    const auto shard = shard_on(to, from);
    const std::vector<std::int64_t> ranks = lightest_ranks();
    const std::size_t among = std::max<std::size_t>(1, ranks.size() / 2);
    const std::int64_t rank = ranks[random_.below(among)];
    if (!may_use(table, rank) || has(to, rank)) return false;
    to.ranks[shard] = rank;
    return try_changes({{table, std::move(to)}});
  }

  // One shard against one of another table elsewhere.
  Result<bool> swap(std::size_t table, std::size_t from) {
    TablePlacement to = plan_[table];
    if (!moves_alone(to.type)) return false;
    const std::size_t elsewhere = random_.below(on_rank_.size());
    if (elsewhere == from || on_rank_[elsewhere].empty()) return false;
    const auto& there = on_rank_[elsewhere];
    const std::size_t other = there[random_.below(there.size())];
    TablePlacement back = plan_[other];
    if (other == table || !moves_alone(back.type)) return false;
    const std::size_t shard = shard_on(to, from);
    const auto home = static_cast<std::size_t>(to.ranks[shard]);
    if (home == elsewhere) return false;
    const std::size_t other_shard = shard_on(back, elsewhere);
    const auto here = static_cast<std::int64_t>(home), away = static_cast<std::int64_t>(elsewhere);
    if (has(to, away) || has(back, here) || !may_use(table, away) || !may_use(other, here)) {
      return false;
    }
    to.ranks[shard] = away;
    back.ranks[other_shard] = here;
    return try_changes({{table, std::move(to)}, {other, std::move(back)}});
  }

  static bool has(const TablePlacement& placement, std::int64_t rank) {
    return contains(placement.ranks, rank);
  }
  // The shard on that rank, else any.
  std::size_t shard_on(const TablePlacement& placement, std::size_t rank) {
    const auto found =
        std::find(placement.ranks.begin(), placement.ranks.end(), static_cast<std::int64_t>(rank));
    if (found != placement.ranks.end()) {
      return static_cast<std::size_t>(found - placement.ranks.begin());
    }
    return random_.below(placement.ranks.size());
  }

  search::Random random_;
  const ImproveOptions& options_;
};

Result<std::vector<TablePlacement>> BatchModel::improved(std::span<const TablePlacement> placements,
                                                         const ImproveOptions& options) const {
  PERFMODEL_TRY_TO(check_placements(study_.tables, placements));
  return Improver(*this, placements, options).run();
}

}  // namespace perfmodel::sharding
