#include "pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "explain_job.hpp"
#include "job_tasks.hpp"
#include "meet_collectives.hpp"
#include "power_limit.hpp"
#include "rank_program.hpp"

namespace perfmodel {
namespace {

Result<void> check_question(std::span<const RankInput> ranks, const JobOptions& options) {
  const std::vector<double>& starts = options.rank_start_us;
  if (ranks.empty()) {
    return fail(ErrorCode::kImpossible, "expected at least one graph, found none");
  }
  if (!starts.empty() && starts.size() != ranks.size()) {
    return fail(ErrorCode::kImpossible, fmt::format("expected one start per rank ({}), found {}",
                                                    ranks.size(), starts.size()));
  }
  for (const RankInput& rank : ranks) {
    if (!(rank.options.host_scale > 0 && rank.options.host_scale <= kMostHostScale)) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected a scale of the host above 0, at most {}, found {}",
                              kMostHostScale, rank.options.host_scale));
    }
  }
  if (!std::ranges::all_of(starts, [](double start) { return std::isfinite(start); })) {
    return fail(ErrorCode::kImpossible, "expected finite starts of the ranks, found another");
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
  return Unexpected{
      Error{.code = ErrorCode::kImpossible,
            .message =
                fmt::format("expected collectives for {} ranks, found none: --strategy ddp or fsdp "
                            "runs the graph of one rank on several",
                            world),
            .file = programs.front().graph().source}};
}

// In steady state, at the pace that the boards' power limits allow. Slower kernels may hide behind
// the host, so that the board needs more of them.
Result<std::unique_ptr<JobTasks>> schedule_job(std::span<RankProgram> programs, const Gpu& gpu,
                                               std::int32_t meetings,
                                               std::vector<std::string>& warnings) {
  constexpr int kMostTries = 4;
  for (int tries = 1;; ++tries) {
    auto tasks = std::make_unique<JobTasks>(programs, meetings);
    std::vector<std::string> own;
    auto scheduled = find_steady_state(programs, *tasks, own);
    if (!scheduled) return Unexpected{scheduled.error()};
    if (tries < kMostTries && hold_to_power_limit(gpu, *tasks, programs)) continue;
    warnings.insert(warnings.end(), own.begin(), own.end());
    return tasks;
  }
}

// The stages of a prediction. Those of one rank (facts, lowered, scaled out, priced) are the list
// of make_rank_program.
Result<JobPrediction> predict_once(std::span<const RankInput> ranks, const Gpu& gpu,
                                   const JobOptions& options, const HostFacts* facts,
                                   std::optional<double> added_bytes) {
  if (auto good = check_question(ranks, options); !good) return Unexpected{good.error()};
  std::vector<std::string> warnings;
  std::vector<RankProgram> programs;
  for (const RankInput& rank : ranks) {
    auto program = make_rank_program(rank, gpu, facts, added_bytes,
                                     rank.options.keep_ops || options.keep_chakra, warnings);
    if (!program) return Unexpected{program.error()};
    programs.push_back(std::move(*program));
  }
  if (auto good = check_world(programs); !good) return Unexpected{good.error()};

  const auto meetings = meet_collectives(programs, options.missing_collectives, warnings);
  if (!meetings) return Unexpected{meetings.error()};

  auto tasks = schedule_job(programs, gpu, *meetings, warnings);
  if (!tasks) return Unexpected{tasks.error()};
  if (!options.rank_start_us.empty()) {
    auto started = start_together(options.rank_start_us, **tasks);
    if (!started) return Unexpected{started.error()};
  }
  return explain_job(programs, gpu, options.keep_chakra, **tasks, std::move(warnings));
}

}  // namespace

Result<JobPrediction> predict_ranks(std::span<const RankInput> ranks, const Gpu& gpu,
                                    const JobOptions& options, const HostFacts* facts,
                                    std::optional<double> added_bytes) {
  auto job = predict_once(ranks, gpu, options, facts, added_bytes);
  const auto asks = [](const RankInput& rank) { return rank.options.host_sensitivity; };
  if (!job || std::ranges::none_of(ranks, asks)) return job;
  std::vector<RankInput> others(ranks.begin(), ranks.end());
  JobOptions plain = options;
  plain.keep_chakra = false;
  for (const double scale : kOtherHosts) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      others[r].options.host_scale = scale * ranks[r].options.host_scale;
      others[r].options.keep_ops = false;
      others[r].options.what_if_steps = 0;
      others[r].options.step_range = false;
    }
    const auto scaled = predict_once(others, gpu, plain, facts, added_bytes);
    if (!scaled) return Unexpected{scaled.error()};
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!asks(ranks[r])) continue;
      job->ranks[r].host_sensitivity.push_back({scale, scaled->ranks[r].e2e_us});
    }
  }
  return job;
}

Result<PacedProgram> paced_program(const RankInput& rank, const Gpu& gpu, bool keep_works) {
  if (auto good = check_question({&rank, 1}, {}); !good) return Unexpected{good.error()};
  std::vector<std::string> told_by_predict;
  std::vector<RankProgram> programs;
  auto made = make_rank_program(rank, gpu, nullptr, {}, keep_works, told_by_predict, keep_works);
  if (!made) return Unexpected{made.error()};
  programs.push_back(std::move(*made));
  const auto meetings = meet_collectives(programs, false, told_by_predict);
  if (!meetings) return Unexpected{meetings.error()};
  auto tasks = schedule_job(programs, gpu, *meetings, told_by_predict);
  if (!tasks) return Unexpected{tasks.error()};
  return PacedProgram{std::move(programs.front()), *meetings};
}

}  // namespace perfmodel
