#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/predictor.hpp"

namespace perfmodel {

/// A training job whose length on several kinds and numbers of GPUs a scheduler asks for.
struct JobDurationQuestion {
  std::vector<std::string> gpus = {};      ///< names; empty: all that the Predictor loaded
  std::vector<std::int64_t> worlds = {1};  ///< GPUs of the job; each has the whole batch
  std::optional<double> samples = {};      ///< the length of the job
  std::optional<double> tokens = {};       ///< instead of samples; needs `ask.sequence`
  /// Batch of one GPU, sequence, topology and scales. Without a strategy, worlds above 1 are DDP.
  AskOptions ask = {};
  std::size_t threads = 1;  ///< 0: as many as the machine runs at once
};

/// The job on `world` GPUs of one kind.
struct JobDuration {
  std::string gpu;  ///< its full name
  std::int64_t world = 1;
  std::optional<Error> error = {};  ///< then the rest is empty: this machine cannot run the job
  double step_us = 0, low_us = 0, high_us = 0;  ///< one step; the range holds in nine of ten cases
  double samples_per_s = 0, samples_per_step = 0;
  double needed_bytes = 0, device_bytes = 0;  ///< each GPU; 0: not predicted
  bool fits = true;
  std::optional<double> steps = {};  ///< none without samples or tokens

  /// Seconds that the steps take with the probability `share` at most. The error of a prediction is
  /// the same in every step, so it does not average out: the logarithm of a step's time is normal
  /// on each side of `step_us`, with 5 % of the cases outside of each end of the range. Queues,
  /// failures, checkpoints and evaluation are not in it.
  std::optional<double> seconds(double share) const;
};

/// Each kind of GPU with each world, in the order of the question. Errors: no GPU, no world, both
/// samples and tokens, tokens without a sequence, numbers that are not above 0, a graph whose batch
/// is unknown; errors of `Predictor::predict_many`. A machine that cannot run the job is a row.
Result<std::vector<JobDuration>> job_durations(const Predictor& predictor,
                                               const PreparedGraph& graph,
                                               const JobDurationQuestion& question);

}  // namespace perfmodel
