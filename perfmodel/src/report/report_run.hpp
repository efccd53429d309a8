#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyze/step_facts.hpp"
#include "perfmodel/detail/findings.hpp"
#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/memory.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "report/report_page.hpp"

namespace perfmodel::report_page {

/// Names of a page, each once.
class Names {
 public:
  int index(std::string_view name);
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, int, std::less<>> known_;
};

/// One run (a prediction, a recording, a rank) to be shown.
struct Run {
  std::string name;
  const findings::StepFacts* facts = nullptr;
  std::vector<findings::PathPiece> path = {};
  const Findings* found = nullptr;
  const Gpu* gpu = nullptr;  ///< null: not known
  double step_us = 0;
  std::vector<std::pair<std::string, std::string>> more_facts = {};  ///< for the headline
  std::optional<MemoryReport> memory = {};
  std::optional<MeasuredMemory> measured_memory = {};
};

/// Data of the run on the page. At most `most_slices` ops and kernels each are drawn, the longest;
/// all count in sums.
Json run_data(const Run& run, std::size_t most_slices, Names& names);

/// "The host limits the step: 83 % of the critical path is its work, most of it aten::linear (12
/// %)."
std::string limit_sentence(const Run& run);

/// "gemm 64 x 512 x 784, fp32": empty if shapes tell nothing.
std::string shape_text(const KernelWork& work);

}  // namespace perfmodel::report_page
