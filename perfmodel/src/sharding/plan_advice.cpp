#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "perfmodel/sharding/rank_plans.hpp"

namespace perfmodel::sharding {
namespace {

bool is_of_tables(BatchPart part) {
  return part == BatchPart::kLookupForward || part == BatchPart::kLookupBackward ||
         part == BatchPart::kVectorExchange || part == BatchPart::kGradientExchange ||
         part == BatchPart::kIdExchange || part == BatchPart::kPrefetch;
}

Load load_of(BatchPart part) {
  switch (part) {
    case BatchPart::kVectorExchange: return Load::kVectorBytes;
    case BatchPart::kGradientExchange: return Load::kGradientBytes;
    case BatchPart::kIdExchange: return Load::kIdBytes;
    case BatchPart::kPrefetch: return Load::kPrefetchLinkBytes;
    case BatchPart::kLookupForward: return Load::kForwardDramBytes;
    default: return Load::kBackwardDramBytes;
  }
}

double lookups_us(const BatchRank& rank) {
  return rank.parts[BatchPart::kLookupForward] + rank.parts[BatchPart::kLookupBackward];
}

// Tries changes and keeps the best.
class Fixes {
 public:
  Fixes(const BatchModel& model, std::span<const TablePlacement> placements, double before_us,
        PlanAdvice& advice)
      : model_(model),
        placements_(placements.begin(), placements.end()),
        before_us_(before_us),
        advice_(advice) {}

  void other_cuts(std::size_t table, const BatchTime& time) {
    const ShardedTable& of = model_.study().tables[table];
    for (TablePlacement way : model_.ways(of)) {
      if (!place(table, way, time)) continue;
      const TablePlacement before = placements_[table];
      if (way.type != ShardingType::kDataParallel) {
        const auto share = way.settings.cache_share;
        way.settings = before.settings;
        way.settings.cache_share = share;
      }
      if (way == before) continue;
      placements_[table] = way;
      consider(model_, describe(of, way));
      placements_[table] = before;
    }
  }

  void settings() {
    using Pipeline = TorchrecSettings::Pipeline;
    const ShardingStudy& study = model_.study();
    const auto with = [&](const std::string& text, auto change) {
      ShardingStudy changed = study;
      if (!change(changed)) return;
      const auto model = model_.with(changed);
      if (model) consider(*model, text);
    };
    with("exchange the ids of the next batch beside this one (pipeline sparse_dist)",
         [](ShardingStudy& s) {
           const bool none = s.pipeline == Pipeline::kNone;
           s.pipeline = Pipeline::kSparseDist;
           return none;
         });
    with("send vectors and their gradients in 2 bytes per element", [](ShardingStudy& s) {
      bool any = false;
      for (ShardedTable& table : s.tables) {
        const int wire = table.output_bytes.value_or(table.element_bytes);
        any = any || table.forward_wire_bytes.value_or(wire) > 2;
        table.forward_wire_bytes = table.backward_wire_bytes = 2;
      }
      return any;
    });
    with("keep tables in 2 bytes per element", [](ShardingStudy& s) {
      bool any = false;
      for (ShardedTable& table : s.tables) {
        any = any || table.element_bytes > 2;
        if (!table.output_bytes) table.output_bytes = table.element_bytes;
        table.element_bytes = std::min(table.element_bytes, 2);
      }
      return any;
    });
  }

 private:
  // Ranks for the shards: the least busy ones; blocks of rows on the least busy host.
  bool place(std::size_t table, TablePlacement& way, const BatchTime& time) const {
    if (way.type == ShardingType::kRowWise || way.type == ShardingType::kDataParallel) return true;
    const auto sizes = model_.sizes(table, way);
    if (!sizes) return false;
    std::vector<std::int64_t> ranks(time.ranks.size());
    std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::int64_t a, std::int64_t b) {
      return lookups_us(time.ranks[a]) < lookups_us(time.ranks[b]);
    });
    const std::int64_t host = ranks.front() / model_.local_world();
    const bool on_hosts = way.type == ShardingType::kTableRowWise ||
                          way.type == ShardingType::kTableColumnWise ||
                          way.type == ShardingType::kGrid;
    way.ranks.clear();
    for (std::size_t i = 0; i < sizes->size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (on_hosts) {
        way.ranks.push_back(host * model_.local_world() + at % model_.local_world());
      } else {
        if (i >= ranks.size()) return false;
        way.ranks.push_back(ranks[i]);
      }
    }
    return true;
  }

  static std::string describe(const ShardedTable& table, const TablePlacement& way) {
    if (way.type == ShardingType::kTableWise) {
      return fmt::format("move {} to rank {}", table.name, way.ranks.front());
    }
    std::string text = fmt::format("shard {} {}", table.name, to_string(way.type));
    if (way.least_columns > 0) text += fmt::format(" in pieces of {} columns", way.least_columns);
    if (way.settings.cache_share) {
      text += fmt::format(" with {:g} % of its rows in the cache", 100 * *way.settings.cache_share);
    }
    return text;
  }

  void consider(const BatchModel& model, const std::string& text) {
    const auto time = model.time(placements_);
    if (!time || !time->ranks_over_memory.empty()) return;
    const double gain = before_us_ - time->predicted_us;
    if (gain <= advice_.fix_gain_us) return;
    advice_.fix = text;
    advice_.fix_gain_us = gain;
  }

  const BatchModel& model_;
  std::vector<TablePlacement> placements_;
  const double before_us_;
  PlanAdvice& advice_;
};

// The table with the largest part of a load on a rank.
Result<void> find_table(const BatchModel& model, std::span<const TablePlacement> placements,
                        const BatchTime& time, PlanAdvice& advice) {
  const Load load = load_of(advice.bottleneck);
  const double all = time.ranks[advice.rank].load[load];
  if (all <= 0) return {};
  for (std::size_t t = 0; t < placements.size(); ++t) {
    PERFMODEL_TRY(part,
                  model.load_on_rank(t, placements[t], static_cast<std::int64_t>(advice.rank)));
    const double share = (*part)[load] / all;
    if (share > advice.table_share) {
      advice.table_share = share;
      advice.table = t;
    }
  }
  return {};
}

}  // namespace

Result<PlanAdvice> advise(const BatchModel& model, std::span<const TablePlacement> placements,
                          const BatchTime& time) {
  PlanAdvice advice;
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    PERFMODEL_TRY(without, model.time_without(time, part));
    const double gain = time.predicted_us - *without;
    if (gain > advice.free_gain_us) {
      advice.free_gain_us = gain;
      advice.bottleneck = part;
    }
  }
  const Load load = load_of(advice.bottleneck);
  for (std::size_t r = 0; r < time.ranks.size(); ++r) {
    const bool by_load = is_of_tables(advice.bottleneck);
    const double here = by_load ? time.ranks[r].load[load] : lookups_us(time.ranks[r]);
    const double most =
        by_load ? time.ranks[advice.rank].load[load] : lookups_us(time.ranks[advice.rank]);
    if (here > most) advice.rank = r;
  }
  if (is_of_tables(advice.bottleneck)) {
    PERFMODEL_TRY_TO(find_table(model, placements, time, advice));
  }
  Fixes fixes(model, placements, time.predicted_us, advice);
  if (advice.table) fixes.other_cuts(*advice.table, time);
  fixes.settings();
  return advice;
}

}  // namespace perfmodel::sharding
