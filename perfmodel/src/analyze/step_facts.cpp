#include "analyze/step_facts.hpp"

#include <algorithm>

#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::findings {

namespace {

// Built-in functions have no file: "<built-in method apply of type object at 0x7f...>".
bool is_in_file(std::string_view frame) {
  return !frame.starts_with('<') && frame.find(".py(") != std::string_view::npos;
}

// Kineto writes paths relative to the folder of sys.path that holds the file: PyTorch's begin with
// "torch/"; the paths of Python's library are bare or start with "lib/python3".
bool is_own_code(std::string_view frame) {
  if (!is_in_file(frame)) return false;
  for (const std::string_view library : {"torch/", "torchrec/", "fbgemm_gpu/", "threading.py(",
                                         "contextlib.py(", "runpy.py(", "functools.py("}) {
    if (frame.starts_with(library)) return false;
  }
  for (const std::string_view folder : {"/lib/python3", "-packages/torch/"}) {
    if (frame.find(folder) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

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
  const std::string_view line = line_of(op);
  for (; op >= 0 && names.size() < kInnermost; op = ops[op].parent) {
    if (ops[op].is_frame) continue;
    std::string_view name = ops[op].name;
    for (const std::string_view numbered : {"ProfilerStep#", "Optimizer.step#"}) {
      if (name.starts_with(numbered)) name = name.substr(0, numbered.size() - 1);  // any step
    }
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  if (names.empty()) return "(outside of ops)";
  while (op >= 0 && ops[op].is_frame) {
    op = ops[op].parent;
  }
  std::string text = op >= 0 ? "... / " : "";
  for (std::size_t i = names.size(); i-- > 0;) {
    text += names[i];
    if (i > 0) text += " / ";
  }
  if (!line.empty()) text.append(" at ").append(line);
  return text;
}

std::string_view StepFacts::line_of(std::int32_t op) const {
  std::string_view innermost;
  for (; op >= 0; op = ops[op].parent) {
    const OpFact& at = ops[op];
    if (!at.is_frame || !is_in_file(at.name)) continue;
    if (is_own_code(at.name)) return at.name;
    if (innermost.empty()) innermost = at.name;
  }
  return innermost;
}

std::string_view StepFacts::optimizer_around(std::int32_t op) const {
  constexpr std::string_view kLabel = "Optimizer.step#";
  for (; op >= 0; op = ops[op].parent) {
    std::string_view name = ops[op].name;
    if (!name.starts_with(kLabel)) continue;
    name.remove_prefix(kLabel.size());
    return name.substr(0, name.find('.'));
  }
  return {};
}

std::int32_t StepFacts::top_op(std::int32_t op) const {
  std::int32_t top = op;
  for (; op >= 0; op = ops[op].parent) {
    if (!ops[op].is_label) top = op;
  }
  return top;
}

}  // namespace perfmodel::findings
