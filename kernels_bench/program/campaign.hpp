#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../core/device.hpp"
#include "../families/family.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace kernels_bench {

struct CampaignOptions {
  std::filesystem::path folder;
  std::vector<const Family*> families;
  double budget_seconds = 0;  ///< 0: no limit
  std::size_t points = 0;     ///< per family, present rows included; 0: the whole sweep
  double share = 1;           ///< share of each family's sweep, if `points` is 0
  std::uint64_t seed = 1;
  MeasureOptions measure;
  std::string command;
};

/// Whether the program was asked to stop (a signal): the row in hand is finished.
using StopFlag = std::atomic<bool>;

struct FamilyReport {
  const Family* family = nullptr;
  std::size_t planned = 0, measured = 0, rows = 0, skipped = 0;  ///< `measured` of `rows`: now
  double seconds = 0;
  double best_gb_per_s = 0, best_tflop_per_s = 0;  ///< in this run
  /// Median of |predicted / measured - 1| of the quick model over the points that came in random
  /// order, before each was measured; NaN without any.
  double quick_error = 0;
  std::string problem;  ///< why the family ended early; empty: it did not
};

struct CampaignReport {
  std::vector<FamilyReport> families;
  bool stopped = false, out_of_time = false;
};

/// Measures the sweeps of the families into `<folder>/<family>.csv`, peaks first, the others in
/// turns by their share of the campaign. Half of a family's points are the next of its sweep, the
/// others are those that a quick model is least certain about for their cost; points already in the
/// tables are not measured again. `gpu` prices them beforehand.
///
/// A case that does not fit or is not supported is written down as skipped; a missing library ends
/// its family; a wrong result, NaN or a device error ends the campaign with an error (a wrong
/// result is written down, so that the next run goes on after it). In any case the rows measured
/// so far stay.
perfmodel::Result<CampaignReport> run_campaign(Device& device, const perfmodel::Gpu& gpu,
                                               const CampaignOptions& options,
                                               const StopFlag& stop);

/// Expected time of a point: memory, random data, check and repetitions.
double expected_seconds(const Case& point, double time_us, const MeasureOptions& options);

Limits limits_for(double memory_bytes);

}  // namespace kernels_bench
