#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sweep/detail/sweep_spec.hpp"
#include "perfmodel/what_if.hpp"

namespace perfmodel {

/// Variants of a graph on several targets. The first answer is the baseline: the graph as it is, on
/// the first target.
struct WhatIfReport {
  std::string graph_file;
  std::vector<sweep::RewriteAxis> axes;
  std::vector<std::vector<std::string>> values;  ///< per variant, one per axis; empty: as it is
  std::vector<Variant> variants;
  std::vector<WhatIfTarget> targets;
  std::vector<WhatIfAnswer> answers;
  std::string models;
  bool at_largest_batch = false;
  std::vector<double> usd_per_gpu_hour;  ///< per target; empty: not asked
  std::vector<std::string> warnings;

  const WhatIfAnswer& baseline() const { return answers.front(); }
  const Gpu& gpu(const WhatIfAnswer& answer) const { return targets[answer.target].gpu; }
};

/// Fills `values` and `variants`: every combination of the values of `axes`, the last axis fastest,
/// after the graph as it is. Error: more than a million.
Result<void> cross_axes(WhatIfReport& report);

/// Fills `answers`. Errors: the baseline's; the first refusal, if every variant is refused.
Result<void> answer_variants(const ExecutionGraph& graph, const WhatIfOptions& options,
                             WhatIfReport& report);

/// Times the baseline's throughput: samples per second where both inputs tell their batch, else
/// steps per second. Not above 0: one of them has no answer.
double speed_up(const WhatIfReport& report, const WhatIfAnswer& answer);

/// Cost [$] and energy [kWh] of a million samples on all GPUs of the job; of a million steps of a
/// GPU if the batch is unknown. None: no price, no power, no answer.
std::optional<double> usd_per_million(const WhatIfReport& report, const WhatIfAnswer& answer);
std::optional<double> kwh_per_million(const WhatIfAnswer& answer);

/// Positions in `answers`: cheapest first, refusals last; in their own order without prices.
std::vector<std::size_t> cheapest_first(const WhatIfReport& report);

/// Warnings of one answer: a step that cannot run, for its types or its memory.
std::vector<std::string> answer_warnings(const WhatIfReport& report, const WhatIfAnswer& answer);

/// Ops that some answer has no model of, each once.
std::vector<std::string> unmodelled_ops(const WhatIfReport& report);

}  // namespace perfmodel
