#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sweep/detail/sweep_options.hpp"
#include "perfmodel/sweep/detail/sweep_spec.hpp"

namespace perfmodel::sweep {

struct SweepReport {
  std::uint64_t rows = 0, chunks = 0;  ///< in the whole sweep
  std::uint64_t finished_before = 0;   ///< rows in parts at the start
  std::uint64_t predicted = 0;         ///< rows that this run added, refused ones included
  std::uint64_t refused = 0;           ///< predicted rows with an error
  std::uint64_t too_large = 0;         ///< predicted rows whose static memory does not fit the GPU
  std::uint64_t foreign = 0;           ///< rows in parts that do not (or no longer) belong to it
  std::uint64_t repeated = 0;          ///< rows that were made more than once
  std::uint64_t torn_bytes = 0;        ///< in members that a killed process left unfinished
  std::uint64_t missing = 0;           ///< unfinished rows
  std::vector<std::size_t> missing_shards = {};  ///< shards with unfinished rows, from 1
  bool merged = false;                           ///< `output` is written
  bool stopped = false;                          ///< ended by `stop`
  bool others_at_work = false;  ///< all rows are finished, and another process will merge them
  std::vector<std::string> warnings = {};  ///< figures of GPUs that stand in for unknown ones
};

/// Predicts what no part has yet, chunk by chunk, each appended to this process's part as soon as
/// it is complete; then merges all parts, if no row is missing. The output's bytes depend on spec,
/// data and program alone: not on threads, ranks, shards, chunks or how often it was stopped.
///
/// A combination that a rewrite or the predictor refuses is a row with an error. A graph that
/// cannot be read or built ends the sweep with that error, as does a part that cannot be written;
/// what is finished is kept. Other errors: a spec without rows, a shard that is none, parts of
/// another sweep, no memory.
///
/// With a team: all ranks call this with equal arguments. The team is given back before the merge.
/// Ranks above 0 return after their last chunk. Where rank 0 failed as well, or told to stop, their
/// error is `ErrorCode::kCancelled` and needs no printing.
///
/// Memory: per thread a graph and its rewritten form, per GPU a cache of prices (3 MB), a bit per
/// row.
Result<SweepReport> run_sweep(const SweepSpec& spec, const GraphToolbox& toolbox,
                              SweepOptions options);

}  // namespace perfmodel::sweep
