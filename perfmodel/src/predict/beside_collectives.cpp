#include "beside_collectives.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {
namespace {

/// A collective while it moves data, with the shares of the GPU that it takes.
struct Busy {
  double start_us = 0, end_us = 0;
  double of_sms = 0, of_dram = 0;
};

// Collectives that run at once take the sum of their shares.
std::vector<Busy> one_after_the_other(const std::vector<Busy>& overlapping) {
  std::map<double, Busy> changes;  // by time
  for (const Busy& at : overlapping) {
    changes[at.start_us].of_sms += at.of_sms;
    changes[at.start_us].of_dram += at.of_dram;
    changes[at.end_us].of_sms -= at.of_sms;
    changes[at.end_us].of_dram -= at.of_dram;
  }
  std::vector<Busy> made;
  Busy now;
  for (const auto& [time, change] : changes) {
    now.end_us = time;
    if (now.of_sms > 1e-9) made.push_back(now);
    now = {.start_us = time,
           .of_sms = now.of_sms + change.of_sms,
           .of_dram = now.of_dram + change.of_dram};
  }
  return made;
}

double blocks_of(const Topology& topology, const CollectiveShape& shape) {
  const auto ranks =
      static_cast<int>(std::min<std::int64_t>(shape.world_size, topology.gpus_per_node));
  const bool reduces = shape.kind == "all_reduce";
  if (reduces && topology.intra.nvls_channels) return *topology.intra.nvls_channels;
  return 2.0 * topology.ring_channels(ranks);
}

class Rank {
 public:
  Rank(const JobTasks& tasks, std::size_t r, RankProgram& rank)
      : tasks_(tasks), placed_(tasks.ranks[r]->last_pass()), own_(*tasks.ranks[r]), rank_(rank) {}

  bool slow() {
    find_collectives();
    if (busy_.empty()) return false;
    bool changed = false;
    for (const auto& placed : placed_) {
      if (!own_.on_device(placed.task)) continue;
      const Launch* launch = launch_of(rank_.program.instructions[placed.instruction]);
      if (!launch || launch->is_collective()) continue;
      changed |= lengthen(rank_.program.kernel(*launch), tasks_.start(placed.task),
                          tasks_.end(placed.task));
    }
    return changed;
  }

 private:
  void find_collectives() {
    for (const auto& placed : placed_) {
      if (!own_.on_device(placed.task)) continue;
      const Launch* launch = collective_of(rank_.program.instructions[placed.instruction]);
      if (launch && rank_.program.collective(*launch).work >= 0) add(*launch, placed.task);
    }
    busy_ = one_after_the_other(busy_);
  }

  const Topology& topology() {
    if (!topology_) {
      const PredictOptions& options = rank_.rank.options;
      const Topology* asked = options.topology;
      if (!asked && options.scale_out) asked = options.scale_out->topology;
      topology_ = asked ? *asked : topology_for(*rank_.gpu);
    }
    return *topology_;
  }

  void add(const Launch& launch, TaskGraph::TaskId task) {
    const KernelWork& work = rank_.program.comm_works[rank_.program.collective(launch).work];
    const auto* shape = std::get_if<CollectiveShape>(&work.shape);
    const double us = tasks_.end(task) - tasks_.start(task);
    const bool is_message = !shape || shape->kind == "send" || shape->kind == "recv";
    if (is_message || us <= 0 || rank_.gpu->num_sms <= 0) return;
    constexpr double kBlock = 640.0 / 2048;
    const double dram = (work.bytes_read + work.bytes_written).value / (us * 1e-6);
    busy_.push_back(
        {.start_us = tasks_.start(task),
         .end_us = tasks_.end(task),
         .of_sms = std::min(1.0, blocks_of(topology(), *shape) * kBlock / rank_.gpu->num_sms),
         .of_dram = dram / rank_.gpu->dram_bandwidth.value});
  }

  bool lengthen(PredictedKernel& kernel, double start_us, double end_us) {
    constexpr double kMostTaken = 0.5;
    Price& price = kernel.price;
    if (price.bound == Bound::kMeasured || price.time.count() <= 0) return false;
    double added_us = 0;
    const auto ended = [&](const Busy& at) { return at.end_us <= start_us; };
    const auto first = std::ranges::partition_point(busy_, ended);
    for (const Busy& at : std::span(first, busy_.end())) {
      if (at.start_us >= end_us) break;
      const double overlap_us = std::min(end_us, at.end_us) - std::max(start_us, at.start_us);
      if (overlap_us <= 0) continue;
      const double share = at.of_sms + (price.bound == Bound::kMemory ? at.of_dram : 0);
      added_us += overlap_us * std::min(kMostTaken, share);
    }
    if (added_us <= 0) return false;
    const double factor = 1 + added_us / price.time.count();
    for (Microseconds* time : {&price.time, &price.low, &price.high}) *time *= factor;
    kernel.beside_us += added_us;
    return true;
  }

  const JobTasks& tasks_;
  const std::vector<ProgramTasks::Placed>& placed_;
  const ProgramTasks& own_;
  RankProgram& rank_;
  std::optional<Topology> topology_;  // found with the first collective
  std::vector<Busy> busy_;            // one after the other
};

}  // namespace

bool slow_beside_collectives(const JobTasks& tasks, std::span<RankProgram> programs) {
  bool changed = false;
  for (std::size_t r = 0; r < programs.size(); ++r) changed |= Rank(tasks, r, programs[r]).slow();
  return changed;
}

}  // namespace perfmodel
