#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/sync/detail/sync_job.hpp"
#include "predict/pipeline.hpp"

namespace perfmodel::sync {

/// GPUs of the ranks of a job from "h100-sxm-80gb:6,a100-sxm-80gb:2" or one name per rank; a name
/// may be a file. Error: an empty name or a count that is none.
Result<std::vector<std::string>> gpus_of_ranks(std::string_view text);

/// Collectives of a rank whose link carries `link` in one direction: they take what `base` says,
/// but no less than its latency and the time of the rank's bytes on that link (all-reduce
/// 2 (n-1)/n S; all-gather, reduce-scatter, all-to-all, gather, scatter (n-1)/n S; others S).
/// `base` must outlive the model.
std::unique_ptr<KernelModel> make_linked_collectives(const KernelModel& base, BytesPerSecond link);

struct StragglerDraws {
  Straggler straggler;
  std::uint64_t seed = 0;
  std::size_t draws = 1000;
};

/// The job's step over many draws.
struct DrawnSteps {
  std::size_t draws = 0;
  double mean_us = 0, median_us = 0, p95_us = 0, most_us = 0;
};

struct MixedPrediction {
  JobPrediction job;  ///< its ranks as they were given; no stragglers
  std::optional<DrawnSteps> drawn;
};

/// Predicts a job whose ranks differ; alike ones are given once, with their number. Collectives
/// that meet take as long as the slowest member's price of them.
/// `draws`: each step, all host work and kernels of a rank take their time times a factor of the
/// rank's own; collectives do not. Among ranks that are alike, the one with the largest factor
/// arrives last everywhere, so only the largest factor of each kind counts: the step is scheduled
/// once per draw, as the steady state of ranks that are as slow in every step. The factor of rank i
/// in draw k comes from (seed, i, k) alone, ranks numbered in the given order.
///
/// Errors of predict_job; draws of more than kMostDrawnTasks tasks together.
Result<MixedPrediction> predict_mixed_job(std::span<const PlacedRank> ranks,
                                          const JobOptions& options,
                                          const std::optional<StragglerDraws>& draws = {});

inline constexpr double kMostDrawnTasks = 1e10;

}  // namespace perfmodel::sync
