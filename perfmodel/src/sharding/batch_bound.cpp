#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "batch_job.hpp"
#include "batch_schedule.hpp"
#include "fill_table_space.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "plan_search_space.hpp"
#include "price/kernels/embedding_rates.hpp"

/// A time that no plan beats. Any path through the schedule of a batch (batch_schedule.hpp) is as
/// long as its parts, and the batch at least as long as any path: with F, B the lookups forward and
/// backward, V, G, I the exchanges of vectors, gradients and ids, R the all-reduce, P the prefetch,
/// each of its slowest rank, and the parts of the dense layers between,
///
///   F + V + top + G + B,  F + V + I + G + B,  F + bottom + top + G + B,  F + V + top + bottom + B,
///   max over ranks of (F + B) + bottom + top + bottom,  F + V + top + G + R, ...,  P
///
/// Each part is bounded by a straight line in the loads of shards, so that a path is a sum of
/// phases. lower_bound() knows a value for it that no plan beats (wherever shards are placed,
/// whatever fits):
///
///   sqrt(a^2 + b^2 + c^2) >= u (a, b, c) for any vector u of length 1; max(a, b) >= either;
///   a price that grows with its size x is at least p(x_k) on [x_k, x_{k+1}], so that
///   c = min over k of p(x_k) / x_{k+1} has c x <= p(x)
///
/// It assumes that prices of sorts and collectives grow with bytes. Latencies of exchanges that
/// some plans do without are left out, which makes gaps of small batches large.
namespace perfmodel::sharding {

struct BatchModel::Minorants {
  double bag_us = 0, id_us = 0;  // forward: waves of bags
  double l2 = 0, dram = 0;       // forward, per byte
  double backward_l2 = 0, backward_dram = 0, link = 0;
  double feature_forward_us = 0, feature_backward_us = 0;
  double forward_us = 0, backward_us = 0;  // per rank, independent of its lookups
  static constexpr std::size_t kMostPasses = 8;
  std::array<double, kMostPasses + 1> sorted_id_us{};  // by passes of the sort
  double all_to_all = 0, ids = 0, reduce_scatter = 0, all_gather = 0;
  double host_sum = 0, host_sum_gradient = 0;
  double all_reduce_us = 0, all_reduce = 0;  // dense part; each further byte
};

namespace {

enum class Walked : std::uint8_t { kF, kB, kFandB, kV, kG, kI, kR, kP };

/// Phases of a path and the time of its other parts.
struct Path {
  std::vector<Walked> phases;
  double other_us = 0;
  std::vector<double> shares = {};  // the part of each phase that counts; none: all of it
  double share(std::size_t phase) const { return phase < shares.size() ? shares[phase] : 1; }
  bool walks(Walked phase) const {
    return std::find(phases.begin(), phases.end(), phase) != phases.end();
  }
};

// In a step of TorchRec's, parts follow each other, but groups of lookups overlap with exchanges of
// other groups: of `groups` that a plan may have, one is looked up before any exchange, and one
// exchange ends after all lookups unless copies do. Exchanges of ids are left out.
std::vector<Path> paths_of_step(const DenseTime& dense, const BatchOrder& order,
                                const BatchWork& least, double groups, bool copies) {
  using enum Walked;
  double us = dense.top_forward_us + dense.top_backward_us + dense.bottom_forward_us +
              dense.bottom_backward_us + least.device_us();
  for (std::size_t i = 0; i < kHostWaits; ++i) us += least.wait(static_cast<HostWait>(i));
  const double last = copies ? 0 : 1 / groups;
  std::vector<Path> paths;
  for (const bool waits_forward : {false, true}) {
    for (const bool waits_backward : {false, true}) {
      const double forward = waits_forward ? 1 / groups : 1, vectors = waits_forward ? 1 : last;
      const double backward = waits_backward ? 1 / groups : 1,
                   gradients = waits_backward ? 1 : last;
      paths.push_back({{kF, kV, kG, kB}, us, {forward, vectors, gradients, backward}});
    }
  }
  if (order.pipelined) paths.push_back({{kP}, 0});
  return paths;
}

std::vector<Path> paths_of(const DenseTime& dense, const BatchOrder& order) {
  const double top = dense.top_forward_us + dense.top_backward_us;
  const double up = dense.bottom_forward_us, down = dense.bottom_backward_us;
  const double update = dense.optimizer_us;
  using enum Walked;
  std::vector<Path> paths = {
      {{kF, kV, kG, kB}, top + update},    {{kF, kG, kB}, up + top + update},
      {{kF, kV, kB}, top + down + update}, {{kFandB}, up + top + down + update},
      {{kF, kV, kR}, top + down + update}, {{kF, kR}, up + top + down + update}};
  if (order.pipelined) paths.push_back({{kF, kV, kI, kG, kB}, update});
  if (!order.reduces_beside) {
    paths.push_back({{kF, kV, kG, kR}, top + update});
    if (order.pipelined) paths.push_back({{kF, kV, kI, kG, kR}, update});
  }
  if (!order.pipelined) {
    for (Path& path : paths) path.phases.insert(path.phases.begin(), kI);
  } else {
    paths.push_back({{kP}, 0});
  }
  return paths;
}

// Sizes from 1e3 on, each `kStep` times the one before.
constexpr double kStep = 1.06, kFirst = 1e3, kLast = 1e12;

// The steepest line from (kFirst, price(0)) that stays below a growing price.
double slope_below(const std::function<double(double)>& price_us, double last = kLast) {
  const double least = price_us(0);
  double slope = std::numeric_limits<double>::infinity();
  for (double x = kFirst; x < last; x *= kStep) {
    slope = std::min(slope, (price_us(x) - least) / (kStep * x - kFirst));
  }
  return std::isfinite(slope) ? std::max(0.0, slope) : 0;  // infinite: there are no such sizes
}

// The steepest line from the origin that does.
double ratio_below(const std::function<double(double)>& price_us) {
  double slope = std::numeric_limits<double>::infinity();
  for (double x = kFirst; x < kLast; x *= kStep) {
    slope = std::min(slope, price_us(x) / (kStep * x));
  }
  return std::max(0.0, slope);
}

int sort_passes(double rows) {  // passes of 8 bits, as in lookup_time()
  const auto bits = std::bit_width(static_cast<std::uint64_t>(std::max(1.0, rows)));
  return std::clamp(static_cast<int>(bits + 7) / 8, 1, 8);
}

}  // namespace

BatchModel::Minorants BatchModel::minorants(std::span<const ShardLoad> ranks) const {
  Minorants m;
  const bool fused = options_.software == TableSoftware::kFused;
  ShardLoad all;
  for (const ShardLoad& rank : ranks) all += rank;
  const EmbeddingRates none = embedding_rates({.batch = 1, .pooling_factor = 0}, gpu_);
  const EmbeddingRates some = embedding_rates({.batch = 1, .pooling_factor = 16}, gpu_);
  const double latency = some.fixed_us - none.fixed_us, empty = none.fixed_us - 3 * latency;
  // The direction of all loads together: of plans like these the bound is nearly exact.
  const double bag = 3 * latency / none.bags_in_flight, id = latency / 16 / none.bags_in_flight;
  const double a = bag * all[Load::kForwardBags] + id * all[Load::kForwardIds];
  const double b = all[Load::kForwardL2Bytes] / none.l2_bytes_per_us;
  const double c = all[Load::kForwardDramBytes] / none.dram_bytes_per_us;
  const double length = std::max(std::hypot(a, b, c), std::numeric_limits<double>::min());
  m.bag_us = a / length * bag;
  m.id_us = a / length * id;
  m.l2 = b / length / none.l2_bytes_per_us;
  m.dram = c / length / none.dram_bytes_per_us;
  m.link = 1 / row_link_bytes_per_us(gpu_);
  // A rank waits at least for the loads of its first bags; a / length of them are in `bag_us`.
  if (fused) m.forward_us = empty + (1 - a / length) * 3 * latency;

  const double dram_us = all[Load::kBackwardDramBytes] / none.dram_bytes_per_us;
  const double l2_us = all[Load::kBackwardL2Bytes] / none.l2_bytes_per_us;
  (dram_us > l2_us ? m.backward_dram : m.backward_l2) =
      1 / (dram_us > l2_us ? none.dram_bytes_per_us : none.l2_bytes_per_us);
  const auto backward = [&](double ids, double rows, double features) {
    ShardLoad load;
    load[Load::kForwardBags] = 1;
    load[Load::kSortedIds] = ids;
    load[Load::kSortedRows] = rows;
    load[Load::kFeatures] = features;
    return lookup_time(load, options_.software, gpu_, *options_.models);
  };
  if (!fused) {
    m.feature_forward_us =
        backward(0, 1, 2).forward_us - backward(0, 1, 1).forward_us - 3 * latency;
    m.feature_backward_us =
        backward(0, 1, 2).backward_us - backward(0, 1, 1).backward_us - 3 * latency;
  }
  const double launches = fused ? none.fixed_us : 0;
  const auto sort = [&](double ids, double rows) {
    return backward(ids, rows, 0).backward_us - launches;
  };
  const double least = sort(0, 1);
  const double most_ids = 64 * std::max(1.0, all[Load::kSortedIds]);
  double steepest = 0;
  for (int passes = 1; passes <= static_cast<int>(Minorants::kMostPasses); ++passes) {
    const double rows = std::ldexp(1.0, 8 * passes - 4);
    if (rows > 2 * std::max(1.0, all[Load::kSortedRows])) {
      m.sorted_id_us[passes] = m.sorted_id_us[passes - 1];
      continue;
    }
    const double slope =
        slope_below([&](double ids) { return ids == 0 ? least : sort(ids, rows); }, most_ids);
    m.sorted_id_us[passes] = slope;
    steepest = std::max(steepest, slope);
  }
  m.backward_us = launches + least - steepest * kFirst;

  const double copy = exchange_copy_us_per_byte(options_.software);
  const auto all_ranks = [&](CollectiveKind kind) {
    return world() == 1
               ? 0
               : ratio_below([&](double bytes) { return collective_us(kind, bytes).value_or(0); });
  };
  JobLoad even;
  even.ranks.resize(world());
  m.ids = world() == 1 ? 0 : ratio_below([&](double bytes) {
    for (ShardLoad& rank : even.ranks) rank[Load::kIdBytes] = bytes;
    return all_to_all_us(even, Load::kIdBytes, true).value_or(0);
  });
  m.all_to_all = m.ids + copy;
  m.reduce_scatter = all_ranks(CollectiveKind::kReduceScatter);
  m.all_gather = all_ranks(CollectiveKind::kAllGather);
  const auto host_sum = [&](Load of_rank, bool forward) {
    return ratio_below([&](double bytes) {
      JobLoad job;
      job.ranks.resize(1);
      job.ranks.front()[of_rank] = bytes;
      return host_sum_us(job, of_rank, forward).value_or(0);
    });
  };
  m.host_sum = host_sum(Load::kHostSumBytes, true);
  m.host_sum_gradient = host_sum(Load::kHostSumGradientBytes, false);
  const auto reduced = [&](double bytes) {
    const double layers = options_.step ? 0 : dense_.gradient_bytes;
    return collective_us(CollectiveKind::kAllReduce, layers + bytes).value_or(0);
  };
  m.all_reduce = world() == 1 ? 0 : slope_below(reduced);
  m.all_reduce_us = std::max(0.0, reduced(0) - m.all_reduce * kFirst);
  return m;
}

namespace {

// For each table, a bit for each kind of exchange that it may have.
std::vector<std::uint8_t> kinds_of_tables(const BatchModel& model) {
  std::vector<std::uint8_t> kinds;
  for (const ShardedTable& table : model.study().tables) {
    std::uint8_t bits = 0;
    for (const TablePlacement& way : model.ways(table)) {
      bits |= static_cast<std::uint8_t>(1U << StepNeeds::kind_of(way.type));
    }
    kinds.push_back(bits);
  }
  return kinds;
}

// Each table has the kind for which the host needs least, and there is one kind.
double least_host_us(const StepNeeds& needs, std::span<const std::uint8_t> kinds_of_tables) {
  double us = needs.batch.host_us(), least_kind = std::numeric_limits<double>::infinity();
  double saved = 0;
  for (const StepNeeds::Need& need : needs.kinds) {
    least_kind = std::min(least_kind, need.once.host_us());
    saved += std::min(0.0, need.once.host_us());
  }
  for (const std::uint8_t kinds : kinds_of_tables) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t kind = 0; kind < StepNeeds::kKinds; ++kind) {
      if ((kinds & (1U << kind)) != 0) least = std::min(least, needs.kinds[kind].table.host_us());
    }
    us += std::isfinite(least) ? least : 0;
  }
  return us + (saved < 0 ? saved : least_kind);
}

}  // namespace

// No plan has less of any part: each table has the kind with least of it.
BatchWork BatchModel::least_step() const {
  if (!options_.step) return {};
  BatchWork least = options_.step->least(kinds_of_tables(*this));
  if (options_.host_us > 0) least.drop_host();
  return least;
}

Result<double> BatchModel::lower_bound_us(std::span<const TablePlacement> near) const {
  PERFMODEL_TRY(like, time(near));
  std::vector<ShardLoad> ranks;
  for (const BatchRank& rank : like->ranks) ranks.push_back(rank.load);
  const Minorants m = minorants(ranks);
  const auto forward = [&](const ShardLoad& load) {
    return m.bag_us * load[Load::kForwardBags] + m.id_us * load[Load::kForwardIds] +
           m.l2 * load[Load::kForwardL2Bytes] + m.dram * load[Load::kForwardDramBytes] +
           m.link * load[Load::kForwardLinkBytes] + m.feature_forward_us * load[Load::kFeatures];
  };
  const auto backward = [&](const ShardLoad& load) {
    const auto passes = sort_passes(load[Load::kSortedRows]);
    return m.sorted_id_us[passes] * load[Load::kSortedIds] +
           m.backward_l2 * load[Load::kBackwardL2Bytes] +
           m.backward_dram * load[Load::kBackwardDramBytes] +
           m.link * load[Load::kBackwardLinkBytes] + m.feature_backward_us * load[Load::kFeatures];
  };
  const auto of_shard = [&](Walked phase, const ShardLoad& load) -> double {
    switch (phase) {
      case Walked::kF: return forward(load);
      case Walked::kB: return backward(load);
      case Walked::kFandB: return forward(load) + backward(load);
      case Walked::kV:
        return m.all_to_all * load[Load::kVectorBytes] + m.host_sum * load[Load::kHostSumBytes];
      case Walked::kG:
        return m.all_to_all * load[Load::kGradientBytes] +
               m.host_sum_gradient * load[Load::kHostSumGradientBytes];
      case Walked::kI: return m.ids * load[Load::kIdBytes];
      case Walked::kP: return m.link * load[Load::kPrefetchLinkBytes];
      case Walked::kR: break;
    }
    return 0;
  };
  // Every rank has a part of the table, or does this for its own samples.
  const auto of_table = [&](Walked phase, std::size_t table, const TablePlacement& way) -> double {
    const bool changed = used_settings(way).any();
    const ShardedTable& own = study_.tables[table];
    const ShardedTable other = changed ? settled(own, used_settings(way)) : ShardedTable{};
    const ShardedTable& of = changed ? other : own;
    const bool copied = way.type == ShardingType::kDataParallel;
    double us = 0;
    if (way.type == ShardingType::kRowWise && of.gives_sums()) {
      const VectorBytes bytes = vector_bytes(of, world(), *study_.batch_per_rank);
      if (phase == Walked::kV) us += m.reduce_scatter * bytes.forward;
      if (phase == Walked::kG) us += m.all_gather * bytes.backward;
    }
    if (phase == Walked::kR && way.kernel != ComputeKernel::kHashed) {
      const std::int64_t rows = copied ? of.rows : of.hot_rows;
      us += m.all_reduce * static_cast<double>(rows * of.dim) * of.element_bytes;
    }
    if (!copied && has_load_at_home(of)) {
      us += of_shard(phase, home_load(table, used_settings(way)));
    }
    return us;
  };
  // Whatever type vectors have on the wire, they are no smaller than in the smallest one, and no
  // cast costs less than none: one way stands for all types.
  SearchedSettings but_wire = study_.searched;
  but_wire.wire = false;
  std::vector<double> wire_share;
  for (std::size_t t = 0; t < study_.tables.size(); ++t) wire_share.push_back(least_wire_share(t));
  const auto is_exchange = [](Walked phase) {
    return phase == Walked::kV || phase == Walked::kG || phase == Walked::kI;
  };
  // For one rank alone, a host's NICs carry as little as if its other ranks had nothing.
  const double alone = world() > local_world_ ? 1 / static_cast<double>(local_world_) : 1;

  const auto bound_of = [&](const Path& path) -> Result<double> {
    TableSpace made;
    made.space.world = world();
    made.space.local_world = local_world_;
    made.space.hbm_cap = static_cast<std::int64_t>(std::max(0.0, table_memory()));
    made.space.phases = path.phases.size();
    const auto options = [&](std::uint32_t table,
                             bool together) -> Result<std::vector<PlacementOption>> {
      std::vector<PlacementOption> found;
      for (const TablePlacement& way : ways(study_.tables[table])) {
        if (together && way.type != ShardingType::kTableWise) continue;
        for (const TablePlacement& variant : variants(table, way, but_wire)) {
          auto option = option_of(table, variant, [&](const ShardLoad& load) {
            ShardDemand demand;
            for (std::size_t p = 0; p < path.phases.size(); ++p) {
              demand.loads[p] = path.share(p) * of_shard(path.phases[p], load);
            }
            return demand;
          });
          if (!option) return Unexpected{option.error()};
          for (std::size_t p = 0; p < path.phases.size(); ++p) {
            const double shared = path.share(p) * of_table(path.phases[p], table, variant);
            const bool vectors = path.phases[p] == Walked::kV || path.phases[p] == Walked::kG;
            for (PlacementOption::Run& run : option->shards) {
              run.demand.loads[p] =
                  (run.demand.loads[p] + shared) * (vectors ? wire_share[table] : 1);
            }
          }
          found.push_back(std::move(*option));
        }
      }
      return found;
    };
    PERFMODEL_TRY_TO(fill_table_space(study_.tables, options, made));
    PERFMODEL_TRY(flat, search::flatten(made.space));
    for (search::Option& option : flat->options) {
      option.least_objective = 0;
      for (std::size_t p = 0; p < path.phases.size(); ++p) {
        double largest = 0;
        for (std::uint32_t i = 0; i < option.runs; ++i) {
          largest = std::max(largest, flat->runs[option.first_run + i].demand.loads[p]);
        }
        option.least_objective += largest * (is_exchange(path.phases[p]) ? alone : 1);
      }
    }
    double us = search::lower_bound(*flat) + path.other_us;
    for (std::size_t p = 0; p < path.phases.size(); ++p) {
      const Walked phase = path.phases[p];
      if (phase == Walked::kF || phase == Walked::kFandB) us += path.share(p) * m.forward_us;
      if (phase == Walked::kB || phase == Walked::kFandB) us += path.share(p) * m.backward_us;
    }
    if (path.walks(Walked::kR)) us += m.all_reduce_us;
    return us;
  };

  // Paths that are short for `near` are short for plans like it: their bounds say less.
  const auto length = [&](const Path& path) {
    double us = path.other_us;
    for (std::size_t p = 0; p < path.phases.size(); ++p) {
      const Walked phase = path.phases[p];
      double slowest = 0;
      for (const BatchRank& rank : like->ranks) {
        const PartTimes& parts = rank.parts;
        const double forward_us = parts[BatchPart::kLookupForward];
        const double backward_us = parts[BatchPart::kLookupBackward];
        slowest = std::max(slowest, phase == Walked::kF       ? forward_us
                                    : phase == Walked::kB     ? backward_us
                                    : phase == Walked::kFandB ? forward_us + backward_us
                                    : phase == Walked::kV     ? parts[BatchPart::kVectorExchange]
                                    : phase == Walked::kG     ? parts[BatchPart::kGradientExchange]
                                    : phase == Walked::kI     ? parts[BatchPart::kIdExchange]
                                    : phase == Walked::kR     ? parts[BatchPart::kAllReduce]
                                                              : parts[BatchPart::kPrefetch]);
      }
      us += path.share(p) * slowest;
    }
    return us;
  };
  std::vector<std::pair<double, Path>> paths;
  const BatchWork least = least_step();
  for (Path& path : options_.step
                        ? paths_of_step(dense_, order(), least, least.exchanges + least.has_copies,
                                        least.has_copies)
                        : paths_of(dense_, order())) {
    const double us = length(path);
    paths.emplace_back(us, std::move(path));
  }
  std::stable_sort(paths.begin(), paths.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr double kMuchShorter = 0.75;
  constexpr std::size_t kLargeSpace = 200'000;  // tables x ranks from which one path has to do
  const bool large = study_.tables.size() * like->ranks.size() > kLargeSpace;
  double bound = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (i > 0 && (large || paths[i].first < kMuchShorter * paths.front().first)) break;
    PERFMODEL_TRY(us, bound_of(paths[i].second));
    bound = std::max(bound, *us);
  }
  constexpr double kOneBagUs = 1e-3, kRounding = 1e-9;  // bags are counted in whole ones
  const double device_us = std::max(0.0, bound - kOneBagUs) * (1 - kRounding);
  if (!has_eager_host()) return clock_us(device_us);
  const double host_us = least_host_us(*options_.step, kinds_of_tables(*this));
  return clock_us(std::max(device_us, host_us));
}

}  // namespace perfmodel::sharding
