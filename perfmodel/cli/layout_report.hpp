#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/layout.hpp"
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

/// "compute", "exposed tensor-parallel collectives", ...
std::string_view term_words(LayoutTerm term);

/// What would gain most, best first: terms of the step that other layouts or machines have less
/// of. Shares of the step.
struct LayoutLever {
  std::string what;
  double share = 0;
};
std::vector<LayoutLever> layout_levers(const RankedLayout& ranked);

}  // namespace perfmodel::cli
