#include "predict/mixed_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/impossible.hpp"
#include "base/statistics.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/nccl_tuning.hpp"
#include "predict/predict_with.hpp"
#include "predict/straggler_draws.hpp"

namespace perfmodel::sync {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr std::int64_t kMostRanksOfJob = 1 << 20;

/// Share of the buffer that one rank puts on its link.
double wire_share(CollectiveKind kind, double ranks) {
  const double others = (ranks - 1) / ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * others;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter: return others;
    default: return 1;
  }
}

class LinkedCollectives final : public KernelModel {
 public:
  LinkedCollectives(const KernelModel& base, BytesPerSecond link) : base_(base), link_(link) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    Price price = base_.price(work, gpu);
    const auto* shape = std::get_if<CollectiveShape>(&work.shape);
    const auto kind = shape ? collective_kind(shape->kind) : std::nullopt;
    if (!kind || shape->world_size < 2) return price;
    const Bytes bytes = *kind == CollectiveKind::kAllReduce
                            ? work.bytes_read
                            : std::max(work.bytes_read, work.bytes_written);
    const Microseconds wire =
        wire_share(*kind, static_cast<double>(shape->world_size)) * bytes / link_;
    const Microseconds time = price.latency + wire;
    if (time <= price.time) return price;
    price.low += time - price.time;
    price.high += time - price.time;
    price.time = time;
    price.memory = wire;
    price.bound = Bound::kLink;
    price.in_range = false;
    return price;
  }

 private:
  const KernelModel& base_;
  BytesPerSecond link_;
};

/// Durations of a job's tasks, of which a rank's own may be stretched.
class StretchedTasks {
 public:
  StretchedTasks(std::span<const RankProgram> programs, JobTasks& tasks)
      : programs_(programs),
        tasks_(tasks),
        durations_us_(tasks.graph.durations_us().begin(), tasks.graph.durations_us().end()),
        rank_(durations_us_.size(), -1) {
    const std::size_t pass = durations_us_.size() - static_cast<std::size_t>(tasks.pass_begin);
    std::vector<bool> transfers(pass, false);
    for (std::size_t r = 0; r < programs.size(); ++r) {
      for (const auto& placed : tasks.ranks[r]->last_pass()) {
        const auto at = placed.instruction;
        if (!collective_of(programs[r].program.instructions[at])) continue;
        transfers[placed.task - tasks.pass_begin] = true;
      }
    }
    // All passes hold the same tasks in the same order.
    for (std::size_t i = 0; i < durations_us_.size(); ++i) {
      const std::size_t from_end = durations_us_.size() - 1 - i;
      if (transfers[pass - 1 - from_end % pass]) continue;
      const std::size_t rank = tasks.rank_of(static_cast<TaskId>(i));
      if (rank < programs.size()) rank_[i] = static_cast<std::int32_t>(rank);
    }
  }

  /// The slowest rank's step.
  Result<double> step_us(std::span<const double> factors) {
    for (std::size_t i = 0; i < durations_us_.size(); ++i) {
      if (rank_[i] < 0) continue;
      tasks_.graph.set_duration_us(static_cast<TaskId>(i), factors[rank_[i]] * durations_us_[i]);
    }
    PERFMODEL_TRY_TO(run_schedule(tasks_.graph, tasks_.schedule));
    return std::ranges::max(pass_us_per_step(programs_, tasks_));
  }

 private:
  std::span<const RankProgram> programs_;
  JobTasks& tasks_;
  const std::vector<double> durations_us_;
  std::vector<std::int32_t> rank_;  // per task; -1: it is not stretched
};

/// The largest factor of each kind of ranks in one draw.
std::vector<double> largest_factors(std::span<const RankProgram> programs,
                                    const StragglerDraws& draws, std::int64_t draw) {
  const Worker worker{.name = {}, .step_us = 1, .straggler = draws.straggler};
  std::vector<double> factors;
  std::size_t index = 0;
  for (const RankProgram& kind : programs) {
    double largest = 0;
    for (std::int64_t i = 0; i < kind.count; ++i) {
      largest = std::max(largest, steps_us(worker, index++, draws.seed, draw, 1));
    }
    factors.push_back(largest);
  }
  return factors;
}

DrawnSteps summary_of(std::vector<double> steps) {
  std::ranges::sort(steps);
  return {.draws = steps.size(),
          .mean_us = mean_of(steps),
          .median_us = quantile(steps, 0.5),
          .p95_us = quantile(steps, 0.95),
          .most_us = steps.back()};
}

Result<DrawnSteps> drawn_steps(const StragglerDraws& draws, std::span<const RankProgram> programs,
                               JobTasks& tasks) {
  if (draws.draws < 1 ||
      static_cast<double>(draws.draws) * static_cast<double>(tasks.graph.size()) >
          kMostDrawnTasks) {
    return impossible(
        fmt::format("1 to {:.0f} draws of {} tasks",
                    kMostDrawnTasks / static_cast<double>(tasks.graph.size()), tasks.graph.size()),
        std::to_string(draws.draws));
  }
  StretchedTasks stretched(programs, tasks);
  std::vector<double> steps;
  for (std::size_t k = 0; k < draws.draws; ++k) {
    const auto factors = largest_factors(programs, draws, static_cast<std::int64_t>(k));
    PERFMODEL_TRY(step, stretched.step_us(factors));
    steps.push_back(*step);
  }
  const std::vector<double> as_it_is(programs.size(), 1);
  PERFMODEL_TRY_TO(stretched.step_us(as_it_is));
  return summary_of(std::move(steps));
}

}  // namespace

Result<std::vector<std::string>> gpus_of_ranks(std::string_view text) {
  std::vector<std::string> gpus;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    std::int64_t count = 1;
    const std::size_t colon = name.rfind(':');
    if (colon != std::string_view::npos) {
      if (!read_decimal(name.substr(colon + 1), count)) count = 0;
      name = name.substr(0, colon);
    }
    const auto known = static_cast<std::int64_t>(gpus.size());
    if (name.empty() || count < 1 || known + count > kMostRanksOfJob) {
      return impossible("GPUs as NAME or NAME:COUNT, separated by commas",
                        fmt::format("\"{}\"", text));
    }
    gpus.insert(gpus.end(), static_cast<std::size_t>(count), std::string(name));
    if (comma == std::string_view::npos) return gpus;
    rest.remove_prefix(comma + 1);
  }
}

std::unique_ptr<KernelModel> make_linked_collectives(const KernelModel& base, BytesPerSecond link) {
  return std::make_unique<LinkedCollectives>(base, link);
}

Result<MixedPrediction> predict_mixed_job(std::span<const PlacedRank> ranks,
                                          const JobOptions& options,
                                          const std::optional<StragglerDraws>& draws) {
  for (const PlacedRank& placed : ranks) {
    const RankInput& rank = placed.rank;
    PERFMODEL_TRY_TO(check_input(*rank.graph, rank.options));
    if (rank.table->method == OverheadMethod::kLin) {
      return impossible("overheads of method context for ranks that wait for each other",
                        "method lin");
    }
  }
  std::optional<DrawnSteps> drawn;
  const auto draw = [&](std::span<const RankProgram> programs, JobTasks& tasks) -> Result<void> {
    if (!draws) return {};
    PERFMODEL_TRY(steps, drawn_steps(*draws, programs, tasks));
    drawn = *steps;
    return {};
  };
  PERFMODEL_TRY(job, predict_placed_ranks(ranks, options, draw));
  return MixedPrediction{std::move(*job), drawn};
}

}  // namespace perfmodel::sync
