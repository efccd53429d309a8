#include "pipeline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "beside_collectives.hpp"
#include "explain_job.hpp"
#include "job_tasks.hpp"
#include "meet_collectives.hpp"
#include "pipeline_stages.hpp"
#include "power_limit.hpp"
#include "program/given_times.hpp"
#include "program/price_program.hpp"
#include "rank_program.hpp"

namespace perfmodel {
namespace {

/// Whether there are no layers, or one count for each stage.
bool has_layers_of_stages(const JobOptions& options) {
  const std::vector<double>& layers = options.stage_layers;
  return layers.empty() || (std::ssize(layers) == options.stages &&
                            std::ranges::all_of(layers, [](double count) { return count >= 1; }));
}

Result<void> check_question(std::span<const PlacedRank> ranks, const JobOptions& options) {
  const std::vector<double>& starts = options.rank_start_us;
  if (ranks.empty()) {
    return decline("expected at least one graph, found none");
  }
  if (!has_layers_of_stages(options)) {
    return decline(fmt::format("stage_layers: expected {} counts of layers of 1 or more, found {}",
                               options.stages, fmt::join(options.stage_layers, ",")));
  }
  if (!starts.empty() && starts.size() != ranks.size()) {
    return decline(
        fmt::format("expected one start per rank ({}), found {}", ranks.size(), starts.size()));
  }
  for (const PlacedRank& rank : ranks) {
    const double scale = rank.rank.options.host_scale;
    if (!(scale > 0 && scale <= kMostHostScale)) {
      return decline(fmt::format("expected a scale of the host above 0, at most {}, found {}",
                                 kMostHostScale, scale));
    }
    const double device = rank.rank.options.device_scale;
    if (!(device > 0 && device <= kMostHostScale)) {
      return decline(fmt::format("expected a scale of the device above 0, at most {}, found {}",
                                 kMostHostScale, device));
    }
    if (!(rank.slowdown > 0 && rank.slowdown <= kMostHostScale)) {
      return decline(fmt::format("expected a slowdown above 0, at most {}, found {}",
                                 kMostHostScale, rank.slowdown));
    }
  }
  if (!std::ranges::all_of(starts, [](double start) { return std::isfinite(start); })) {
    return decline("expected finite starts of the ranks, found another");
  }
  return {};
}

// Without collectives the number of ranks would change nothing.
Result<void> check_world(std::span<const RankProgram> programs) {
  std::int64_t world = 1;
  for (const RankProgram& rank : programs) {
    const PredictOptions& options = rank.rank.options;
    if (!options.scale_out) world = std::max(world, options.world_size);
  }
  const auto communicates = [](const RankProgram& rank) {
    return std::ranges::any_of(rank.program.instructions, collective_of);
  };
  if (world == 1 || std::ranges::any_of(programs, communicates)) return {};
  return decline(fmt::format("expected collectives for {} ranks, found none: --strategy ddp or "
                             "fsdp runs the graph of one rank on several",
                             world),
                 programs.front().graph().source);
}

// Schedules the steady state at the pace that concurrent collectives and the boards' power limits
// allow. The host may hide slower kernels, so that the board has to slow more of them.
Result<std::unique_ptr<JobTasks>> schedule_job(std::span<RankProgram> programs,
                                               std::int32_t meetings,
                                               std::vector<std::string>& warnings,
                                               std::unique_ptr<JobTasks> tasks = nullptr) {
  constexpr int kMostTries = 4;
  if (!tasks) tasks = std::make_unique<JobTasks>(programs, meetings);
  for (int tries = 1;; ++tries) {
    std::vector<std::string> own;
    PERFMODEL_TRY(scheduled, find_steady_state(programs, *tasks, own));
    const bool slower = (tries == 1 && slow_beside_collectives(*tasks, programs)) ||
                        (tries < kMostTries && hold_to_power_limit(*tasks, programs));
    if (!slower) {
      warnings.insert(warnings.end(), own.begin(), own.end());
      return tasks;
    }
    // The first three passes are the same ones in other times.
    if (tasks->passes() == 3 && tasks->retime()) continue;
    tasks = std::make_unique<JobTasks>(programs, meetings);
  }
}

// Slows all work of the rank itself: transfers from others take as long as before.
void slow_down(HostProgram& program, double factor) {
  if (factor == 1) return;
  scale_host(program, factor);
  scale_device(program, factor);
}

Result<std::vector<RankProgram>> make_programs(std::span<const PlacedRank> ranks,
                                               const JobOptions& options, const HostFacts* facts,
                                               std::optional<double> added_bytes, JobMemory& last,
                                               std::vector<std::string>& warnings) {
  std::vector<RankProgram> programs;
  if (facts && options.stages == 1 && last.programs.size() == 1) {
    PERFMODEL_TRY(done, repeat_rank_program(ranks[0].rank, *ranks[0].gpu, *facts, last.reshaped,
                                            last.programs[0]));
    if (*done) programs.push_back(std::exchange(last.programs[0], {}));
  }
  for (const PlacedRank& placed : ranks.subspan(programs.size())) {
    const bool names = placed.rank.options.keep_ops || options.keep_chakra;
    PERFMODEL_TRY(program,
                  make_rank_program(placed.rank, *placed.gpu, facts, added_bytes, names, warnings));
    program->count = placed.count;
    slow_down(program->program, placed.slowdown);
    programs.push_back(std::move(*program));
  }
  programs.front().reshaped = last.reshaped;
  PERFMODEL_TRY_TO(check_world(programs));
  if (options.stages == 1) return programs;
  return make_stage_programs(programs.front(), options.stages, options.stage_layers, warnings);
}

/// The tasks of a job that began at the given times of its ranks, if there are any. `known`: its
/// tasks in the times of now; null: they are made.
Result<std::unique_ptr<JobTasks>> schedule_from_starts(std::span<RankProgram> programs,
                                                       std::int32_t meetings,
                                                       const JobOptions& options,
                                                       std::vector<std::string>& warnings,
                                                       std::unique_ptr<JobTasks> known = nullptr) {
  auto tasks = schedule_job(programs, meetings, warnings, std::move(known));
  if (!tasks || options.rank_start_us.empty()) return tasks;
  PERFMODEL_TRY(started, start_together(options.rank_start_us, **tasks));
  return tasks;
}

/// Puts the programs of a question into `job`. The answer: tasks of its last question that are
/// this one's, too, in their times of now; null if there are none.
std::unique_ptr<JobTasks> take_over(std::vector<RankProgram> programs, JobMemory& job) {
  std::unique_ptr<JobTasks> tasks = std::exchange(job.tasks, nullptr);
  const bool same = tasks && !tasks->started && tasks->passes() == 3 && programs.size() == 1 &&
                    job.programs.size() == 1 &&
                    (programs[0].repeats || has_same_tasks(job.programs[0], programs[0]));
  if (!same) {
    tasks = nullptr;
    job.programs = std::move(programs);
    return nullptr;
  }
  job.programs[0] = std::move(programs[0]);
  return tasks->retime() ? std::move(tasks) : nullptr;
}

/// The length of each rank's step, without an explanation or warnings.
Result<std::vector<double>> steps_of(std::span<RankProgram> programs, const JobOptions& options) {
  std::vector<std::string> told_already;
  PERFMODEL_TRY(meetings, meet_collectives(programs, options.missing_collectives, told_already));
  PERFMODEL_TRY(tasks, schedule_from_starts(programs, *meetings, options, told_already));
  return pass_us_per_step(programs, **tasks);
}

using ChangeOfTimes = std::function<void(HostProgram&)>;

// Steps of the same programs in other times, by change and rank. Tasks are not taken over from one
// to the next, since JobTasks::retime sets times of the device alone.
Result<std::vector<std::vector<double>>> steps_with(const std::vector<ChangeOfTimes>& changes,
                                                    const std::vector<RankProgram>& programs,
                                                    const JobOptions& options) {
  std::vector<std::vector<double>> made;
  std::vector<RankProgram> others;  // each in the memory of the one before
  for (const ChangeOfTimes& change : changes) {
    others = programs;
    for (RankProgram& rank : others) change(rank.program);
    PERFMODEL_TRY(steps, steps_of(others, options));
    made.push_back(std::move(*steps));
  }
  return made;
}

double recorded_wait_us(const HostProgram& program) {
  double us = 0;
  for (const PredictedKernel& kernel : program.kernels) us += kernel.recorded_wait_us;
  return us / static_cast<double>(program.steps.size());
}

bool holds_recorded_waits(const RankProgram& rank) {
  return rank.rank.options.step_range && recorded_wait_us(rank.program) > 0;
}

std::string waiting_text(const Prediction& made, const PredictOptions& options) {
  return fmt::format(
      "collectives wait {:.3f} ms per step for other ranks, as recorded on {} (recorded time less "
      "modelled transfer): the step takes {:.3f} ms, without that waiting {:.3f} ms",
      made.recorded_waits->waiting_us / 1e3, options.kernel_times->alone_on->name,
      made.e2e_us / 1e3, made.recorded_waits->step_without_us / 1e3);
}

void take_out_recorded_waits(HostProgram& program) {
  for (PredictedKernel& kernel : program.kernels) lengthen(kernel.price, -kernel.recorded_wait_us);
}

// `steps_us`: of the ranks without their waits for ranks that are not given.
void say_recorded_waits(std::span<const RankProgram> programs, const std::vector<double>& steps_us,
                        JobPrediction& job) {
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (!holds_recorded_waits(programs[r])) continue;
    Prediction& made = job.ranks[r];
    made.recorded_waits = {recorded_wait_us(programs[r].program), steps_us[r]};
    made.warnings.insert(made.warnings.begin(), waiting_text(made, programs[r].rank.options));
  }
}

// The stages of a prediction. make_rank_program lists the stages of one rank (facts, lowered,
// scaled out, priced).
Result<JobPrediction> predict_job_of(std::span<const PlacedRank> ranks, const JobOptions& options,
                                     const HostFacts* facts, std::optional<double> added_bytes,
                                     bool memory, const LookAtSchedule& look, JobMemory& last) {
  PERFMODEL_TRY_TO(check_question(ranks, options));
  std::vector<std::string> warnings;
  PERFMODEL_TRY(made, make_programs(ranks, options, facts, added_bytes, last, warnings));
  for (RankProgram& rank : *made) {
    if (!memory) rank.memory = nullptr;
  }
  const bool other_hosts = std::ranges::any_of(
      ranks, [](const PlacedRank& rank) { return rank.rank.options.host_sensitivity; });
  const bool waits = std::ranges::any_of(*made, holds_recorded_waits);
  std::vector<ChangeOfTimes> changes;
  for (const double scale : kOtherHosts) {
    if (other_hosts) changes.push_back([=](HostProgram& program) { scale_host(program, scale); });
  }
  if (waits) changes.push_back(take_out_recorded_waits);
  PERFMODEL_TRY(steps, steps_with(changes, *made, options));

  PERFMODEL_TRY(meetings, meet_collectives(*made, options.missing_collectives, warnings));
  std::unique_ptr<JobTasks> known = take_over(std::move(*made), last);
  const std::span<RankProgram> programs = last.programs;
  PERFMODEL_TRY(tasks,
                schedule_from_starts(programs, *meetings, options, warnings, std::move(known)));
  if (look) PERFMODEL_TRY_TO(look(programs, **tasks));
  PERFMODEL_TRY(job, explain_job(programs, options.keep_chakra, **tasks, std::move(warnings)));
  last.tasks = std::move(*tasks);
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (!programs[r].rank.options.host_sensitivity) continue;
    for (std::size_t host = 0; host < kOtherHosts.size(); ++host) {
      job->ranks[r].host_sensitivity.push_back({kOtherHosts[host], (*steps)[host][r]});
    }
  }
  if (waits) say_recorded_waits(programs, steps->back(), *job);
  return job;
}

}  // namespace

Result<JobPrediction> predict_ranks(std::span<const RankInput> ranks, const Gpu& gpu,
                                    const JobOptions& options, const HostFacts* facts,
                                    std::optional<double> added_bytes, bool memory,
                                    JobMemory* last) {
  std::vector<PlacedRank> placed;
  for (const RankInput& rank : ranks) placed.push_back({.rank = rank, .gpu = &gpu});
  JobMemory own;
  if (last) own = std::exchange(*last, JobMemory{.reshaped = last->reshaped});
  auto job = predict_job_of(placed, options, facts, added_bytes, memory, {}, own);
  if (job && last) *last = std::move(own);  // a question that fails leaves nothing
  return job;
}

Result<JobPrediction> predict_placed_ranks(std::span<const PlacedRank> ranks,
                                           const JobOptions& options, const LookAtSchedule& look) {
  JobMemory own;
  return predict_job_of(ranks, options, nullptr, {}, true, look, own);
}

Result<PacedProgram> paced_program(const RankInput& rank, const Gpu& gpu, bool keep_questions) {
  const PlacedRank placed{.rank = rank, .gpu = &gpu};
  PERFMODEL_TRY_TO(check_question({&placed, 1}, {}));
  std::vector<std::string> told_by_predict;
  std::vector<RankProgram> programs;
  PERFMODEL_TRY(made, make_rank_program(rank, gpu, nullptr, {}, keep_questions, told_by_predict,
                                        keep_questions));
  programs.push_back(std::move(*made));
  PERFMODEL_TRY(meetings, meet_collectives(programs, false, told_by_predict));
  PERFMODEL_TRY(tasks, schedule_job(programs, *meetings, told_by_predict));
  return PacedProgram{std::move(programs.front()), *meetings};
}

}  // namespace perfmodel
