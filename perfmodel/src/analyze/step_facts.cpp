#include "analyze/step_facts.hpp"

#include <algorithm>

#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::findings {

double StepFacts::active_us() const {
  std::vector<std::pair<double, double>> work;
  for (const KernelFact& kernel : kernels) {
    work.emplace_back(kernel.start_us, kernel.start_us + kernel.time_us);
  }
  return union_us(std::move(work));
}

std::string StepFacts::path(std::int32_t op) const {
  constexpr std::size_t kInnermost = 4;
  std::vector<std::string_view> names;
  for (; op >= 0 && names.size() < kInnermost; op = ops[static_cast<std::size_t>(op)].parent) {
    std::string_view name = ops[static_cast<std::size_t>(op)].name;
    for (const std::string_view numbered : {"ProfilerStep#", "Optimizer.step#"}) {
      if (name.starts_with(numbered)) name = name.substr(0, numbered.size() - 1);  // of any step
    }
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  if (names.empty()) return "(outside of ops)";
  std::string text = op >= 0 ? "... / " : "";
  for (std::size_t i = names.size(); i-- > 0;) {
    text += names[i];
    if (i > 0) text += " / ";
  }
  return text;
}

std::int32_t StepFacts::top_op(std::int32_t op) const {
  std::int32_t top = op;
  for (; op >= 0; op = ops[static_cast<std::size_t>(op)].parent) {
    if (!ops[static_cast<std::size_t>(op)].is_label) top = op;
  }
  return top;
}

}  // namespace perfmodel::findings
