#pragma once

#include <string>
#include <vector>

#include "layout_work.hpp"
#include "perfmodel/detail/layout_traces.hpp"

namespace perfmodel {

/// The step of `work` as tasks: every layer's kernels and collectives of every microbatch, the
/// host's work, sends between stages, buckets of gradients, gathers of parameters, the optimizer.
/// They end at the time of `step_time`, except for the order of buckets among the chunks of an
/// interleaved stage and, beyond 8,192 operations, for the pace that it continues at.
///
/// A layer's kernels lie in equal parts between its collectives; collectives are as long as no
/// compute hides them. `every_rank`: a trace per rank, else one per stage, whose groups and sends
/// name stages. Errors (kImpossible): more than 4 million nodes.
Result<LayoutTraces> layout_traces(const StepQuestion& question, const LayoutWork& work,
                                   bool every_rank);

/// The files that were written for a step.
struct LayoutFiles {
  std::vector<std::string> names;
  std::size_t nodes = 0;  ///< in all traces
};
/// Writes PREFIX.N.et, the groups of ranks and, if `timeline` is not empty, a Chrome trace. Errors:
/// files that cannot be written.
Result<LayoutFiles> write_layout_traces(const LayoutTraces& traces, const std::string& prefix,
                                        const std::string& timeline);

}  // namespace perfmodel
