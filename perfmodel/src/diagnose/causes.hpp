#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/diagnosis.hpp"

namespace perfmodel {

/// A reason why a run is not as predicted, written once: how it changes the run, and what is known
/// of it before anything is measured.
struct Cause {
  std::string_view name;
  /// {} is the value in the words of `show`.
  std::string_view sentence;
  double prior = 0;  ///< weight next to the others; docs/diagnose.md says why
  /// Plausible values, and the values that are tried. Equal: the cause is there, or not.
  double low = 1, high = 1, least = 1, most = 1;
  /// The change that a model of the run predicts.
  void (*change)(double value, RunChange& change) = nullptr;
  /// Changes what was predicted with `change`; null: nothing more. `healthy`: the run without the
  /// cause; `base_us`: its step in the question's own setting; `samples`: one GPU's, as a multiple
  /// of the question's; `is_own`: the figure is of the question's own setting.
  struct Seen {
    const RunOutlook& healthy;
    double base_us = 0, samples = 1;
    bool is_own = true;
  };
  void (*then)(double value, const Seen& seen, RunOutlook& outlook) = nullptr;
  std::string (*show)(double value, const RunModel& model) = nullptr;
  /// Why a run cannot have it; empty: it can.
  std::string_view (*excluded)(const RunModel& model) = nullptr;
  /// Other runs of the machine do not have it, so that they must be known.
  bool is_of_one_run = false;

  bool has_value() const { return least != most; }
};

std::span<const Cause> causes();

/// The values that are tried, in ascending order.
std::vector<double> tried_values(const Cause& cause);

/// The run with that cause. Errors: as the model has them.
Result<RunOutlook> outlook_with(const Cause& cause, double value, const RunModel& model,
                                const RunSetting& at);

}  // namespace perfmodel
