#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout_sweep.hpp"
#include "layout_arguments.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What `layout` prints.
struct LayoutReport {
  const LayoutJob* job = nullptr;
  std::string gpu, gpu_title, topology;
  std::int64_t gpus = 0;
  std::vector<RankedLayout> layouts;
  std::optional<LayoutRanking> search;  ///< of `rank`; its `best` are `layouts`
  double seconds = 0;                   ///< that the search took
  std::vector<OpenEffect> open;         ///< of the first layout
  std::optional<MeasuredFit> measured;  ///< with --measured
  std::vector<std::string> warnings;
};

std::string layout_text(const LayoutReport& report, bool bold);
/// Term by term; of two layouts.
std::string layout_comparison_text(const LayoutReport& report, bool bold);
Json layout_json(const LayoutReport& report);

/// One layout with its price, as `layouts[]` of the JSON has it.
Json layout_json(const RankedLayout& ranked);

/// The best layout at each value of the input `axis`.
std::string layout_sweep_text(const std::string& axis, const std::vector<LayoutSweepRow>& rows,
                              bool bold);
Json layout_sweep_json(const std::string& axis, const std::vector<LayoutSweepRow>& rows);
std::string layout_sweep_csv(const std::string& axis, const std::vector<LayoutSweepRow>& rows);

/// Fits a machine to the steps of `--measured`, reports it, and writes it to `output` if named.
Result<void> calibrate_machine(const LayoutArguments& arguments, const std::string& output);

}  // namespace perfmodel::cli
