#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fields/field.hpp"
#include "perfmodel/diagnosis.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Measured figures in the words of a command line. A number is in the unit that its name ends
/// with.
struct DiagnosisAsk {
  std::vector<std::string> measured;       ///< "6100tokens/s", "12.3samples/s@batch=64"
  std::vector<std::string> measured_step;  ///< "412ms", "700ms@batch=64,world=16"
  std::string log;                         ///< file of step times
  std::string unit;                        ///< as StepLogOptions has it
  std::optional<double> work_per_step;     ///< the same
  std::string trace;                       ///< file of a profiled step
  std::optional<double> later_step_ms, memory_gb, clock_mhz, power_w, link_gb_per_s,
      network_gb_per_s, input_wait_ms, busy_percent, kernels_ms, products_ms, collectives_ms,
      slowest_rank;
};
using DiagnosisField = Field<DiagnosisAsk, std::vector<std::string>>;
std::span<const DiagnosisField> diagnosis_fields();

struct AskedFigures {
  std::vector<RunFigure> figures;
  std::vector<std::string> warnings;  ///< that the log gave
};

/// The figures that the question names, without the terms of its trace. Errors: texts that are no
/// rate, time or setting; rates of tokens for a run whose samples have none; what read_step_log()
/// refuses.
Result<AskedFigures> asked_figures(const DiagnosisAsk& ask, const RunModel& model);

/// The medians of a trace's steps: kernels, collectives, waits, and the step itself with
/// `with_step`. Errors: as analyse() has them.
Result<std::vector<RunFigure>> figures_of_trace(const Trace& trace, bool with_step);

}  // namespace perfmodel
