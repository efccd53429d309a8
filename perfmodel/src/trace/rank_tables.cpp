#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "trace/collective_table.hpp"
#include "trace/device_tables.hpp"

namespace perfmodel {
namespace {

double base_of(const Trace& trace) { return static_cast<double>(trace.base_ns) / 1e3; }

class RankTables {
 public:
  explicit RankTables(std::span<const Trace> traces) : traces_(traces) {}

  Result<TraceRanks> run(const std::optional<std::pair<std::size_t, std::size_t>>& window) {
    std::vector<std::string> names;
    for (const Trace& trace : traces_) {
      names.push_back(trace.source);
      const TraceSelection chosen = select_events(trace, window);
      collectives_.push_back(collectives_of(trace, chosen));
      // On one clock: stamps of a rank count from its own first one.
      for (RankCollective& at : collectives_.back()) {
        at.start_us += base_of(trace) - base_of(traces_.front());
        at.end_us += base_of(trace) - base_of(traces_.front());
      }
      add_rank(trace, chosen);
    }
    PERFMODEL_TRY(match, match_collectives(collectives_, names, {.missing_ranks = true}));
    made_.warnings = match->warnings;
    made_.unmatched = match->unmatched;
    offsets_ = match->clock_offset_us;
    offsets_.resize(traces_.size(), 0);
    for (std::size_t r = 0; r < traces_.size(); ++r) made_.ranks[r].clock_offset_us = offsets_[r];
    for (const auto& members : match->groups) add_meeting(members);
    sum_up();
    return std::move(made_);
  }

 private:
  struct Row {
    TraceAnalysis::Collective sums;
    double transfer_us = 0, skew_us = 0;
    std::int64_t bytes = 0;
  };

  void add_rank(const Trace& trace, const TraceSelection& chosen) {
    DeviceIntervals work;
    for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
      if (chosen.has_gpu(i)) work.add(trace.gpu[i], chosen.is_collective[i]);
    }
    const TraceAnalysis::Breakdown at = device_breakdown(work);
    made_.ranks.push_back({.source = trace.source,
                           .compute_us = at.compute_us,
                           .comm_us = at.comm_us,
                           .exposed_comm_us = at.exposed_comm_us});
  }

  const RankCollective& at(std::size_t rank, std::int32_t position) const {
    return collectives_[rank][position];
  }

  void add_meeting(const std::vector<std::int32_t>& members) {
    std::vector<std::size_t> present;
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (members[r] >= 0) present.push_back(r);
    }
    if (present.size() < 2) {
      ++made_.unmatched;
      return;
    }
    ++made_.matched;
    const auto start = [&](std::size_t r) { return at(r, members[r]).start_us - offsets_[r]; };
    const auto end = [&](std::size_t r) { return at(r, members[r]).end_us - offsets_[r]; };
    const std::size_t last = *std::ranges::max_element(present, {}, start);
    const double first_start = start(*std::ranges::min_element(present, {}, start));
    const double first_end = end(*std::ranges::min_element(present, {}, end));
    ++made_.ranks[last].last_arrivals;
    for (const std::size_t r : present) {
      // A rank waits at most until the collective ends.
      const double waited = std::clamp(start(last) - start(r), 0.0, end(r) - start(r));
      made_.ranks[r].waiting_us += waited;
      if (r != last) made_.ranks[last].caused_us += waited;
    }
    // Ranks may hold buffers of different sizes; the largest one sets the pace.
    const std::size_t largest = *std::ranges::max_element(
        present, {}, [&](std::size_t r) { return at(r, members[r]).largest_bytes(); });
    add_row(at(largest, members[largest]), start(last) - first_start,
            std::max(0.0, first_end - start(last)));
  }

  void add_row(const RankCollective& of, double skew_us, double transfer_us) {
    const std::int64_t elements = std::max(of.in_elements, of.out_elements);
    Row& row = rows_[{of.kind, elements, of.process_group, of.group_size}];
    row.sums.name = of.kind;
    if (elements >= 0) row.sums.elements = elements;
    if (of.group_size > 0) row.sums.group_size = of.group_size;
    row.sums.group = of.process_group;
    ++row.sums.count;
    row.sums.total_us += transfer_us + skew_us;
    row.transfer_us += transfer_us;
    row.skew_us += skew_us;
    row.bytes += of.largest_bytes();
  }

  void sum_up() {
    for (auto& [key, row] : rows_) {
      row.sums.skew_us = row.skew_us / static_cast<double>(row.sums.count);
      if (row.bytes > 0 && row.transfer_us > 0) {
        row.sums.algorithm_gb_per_s = static_cast<double>(row.bytes) / row.transfer_us / 1e3;
        if (const auto factor = bus_factor(row.sums.name, row.sums.group_size)) {
          row.sums.bus_gb_per_s = *row.sums.algorithm_gb_per_s * *factor;
        }
      }
      made_.collectives.push_back(std::move(row.sums));
    }
    std::ranges::stable_sort(made_.collectives, std::ranges::greater{},
                             &TraceAnalysis::Collective::total_us);
    double sum = 0, most = 0;
    for (const TraceRanks::Rank& rank : made_.ranks) {
      sum += rank.compute_us;
      most = std::max(most, rank.compute_us);
    }
    if (sum > 0) {
      made_.compute_imbalance = most * static_cast<double>(made_.ranks.size()) / sum - 1;
    }
    const auto worst = std::ranges::max_element(made_.ranks, {}, &TraceRanks::Rank::caused_us);
    if (worst->caused_us > 0) {
      made_.straggler = static_cast<std::size_t>(worst - made_.ranks.begin());
    }
  }

  std::span<const Trace> traces_;
  std::vector<std::vector<RankCollective>> collectives_;
  std::vector<double> offsets_;
  std::map<std::tuple<std::string, std::int64_t, std::string, std::int64_t>, Row> rows_;
  TraceRanks made_;
};

}  // namespace

Result<void> check_ranks_of_job(std::span<const Trace> traces) {
  const Trace* first = nullptr;  // the first one that tells its world
  std::set<std::int64_t> seen;
  for (const Trace& trace : traces) {
    const auto refuse = [&](std::string message) {
      return decline(std::move(message), trace.source);
    };
    if (trace.world_size >= 0) {
      if (!first) first = &trace;
      if (trace.world_size != first->world_size) {
        return refuse(
            fmt::format("expected ranks of one job, found a world of {} ranks and one of {} in {}",
                        trace.world_size, first->world_size,
                        std::filesystem::path(first->source).filename().string()));
      }
    }
    if (trace.rank >= 0 && !seen.insert(trace.rank).second) {
      return refuse(
          fmt::format("expected every rank once, found rank {} a second time", trace.rank));
    }
  }
  return {};
}

Result<TraceRanks> compare_ranks(std::span<const Trace> traces,
                                 const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  PERFMODEL_TRY_TO(check_ranks_of_job(traces));
  return RankTables(traces).run(window);
}

}  // namespace perfmodel
