#pragma once

#include <span>
#include <string_view>

#include "perfmodel/diagnosis.hpp"

namespace perfmodel {

/// A measurement of a run, written once: its value in an outlook, and how far measurements of it
/// are from their prediction for other reasons than a cause.
struct MeasureKind {
  RunMeasure what;
  std::string_view name;  ///< key of JSON, flag
  std::string_view unit;  ///< "ms": figures are us, for people ms
  std::string_view how;   ///< how to measure it
  double (*predict)(const RunOutlook& outlook, const RunModel& model);
  /// Standard deviation: of the logarithm, or in the figure's unit.
  bool is_log = true;
  double (*deviation)(const RunOutlook& outlook, const RunModel& model);
  /// The model's error of a step counts too.
  bool is_modelled_time = false;
};

/// The easiest to measure first.
std::span<const MeasureKind> measure_kinds();
const MeasureKind& kind_of(RunMeasure what);

/// "412 ms", "62.1 GB", "1410 MHz", "83 %".
std::string measured_words(RunMeasure what, double value);
/// "step at batch 64 on 8 GPUs".
std::string measure_words(RunMeasure what, const RunSetting& at);

}  // namespace perfmodel
