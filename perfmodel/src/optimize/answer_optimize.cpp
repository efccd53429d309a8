#include "answer_optimize.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/contains.hpp"
#include "layout/layout_advice.hpp"
#include "perfmodel/optimize.hpp"

namespace perfmodel {
namespace {

// The flags with which `predict` sees the same machine.
std::string machine_flags(const OptimizeQuestion& question) {
  std::string flags = " --gpu " + shell_word(question.target.gpu);
  if (!question.target.topology.empty())
    flags += " --topology " + shell_word(question.target.topology);
  return flags;
}
// `host_scale`: as asked for, or as a measured step tells.
std::string predict_flags(const OptimizeQuestion& question, double host_scale) {
  std::string flags = machine_flags(question);
  if (!question.target.overheads.empty())
    flags += " --overheads " + shell_word(question.target.overheads);
  if (question.target.models != "learned")
    flags += " --models " + shell_word(question.target.models);
  if (host_scale != 1) flags += fmt::format(" --scale-host {:g}", host_scale);
  return flags;
}

// Only on request: the search takes seconds, and its prices belong to a program of its own.
void add_layout_advice(const OptimizeQuestion& question, const TargetInputs& inputs,
                       Advice& advice) {
  if (!contains(question.options.allow, "layout")) return;
  auto plan =
      inputs.program.trace
          ? Result<LayoutPlanAdvice>(decline("a trace does not tell which tensors are the same"))
          : layout_advice(inputs.program.graph, {.gpu = question.target.gpu,
                                                 .topology = question.target.topology,
                                                 .machine_flags = machine_flags(question),
                                                 .world = question.options.world,
                                                 .host_scale = question.target.host_scale});
  if (plan) {
    advice.layout_plan = std::move(*plan);
    return;
  }
  advice.lost.push_back({.rewrite = "(a layout of the job)",
                         .family = "layout",
                         .why = LostMove::Why::kRefused,
                         .reason = plan.error().message,
                         .step_us = {}});
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=:@%,";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

Result<Advice> answer_optimize(const OptimizeQuestion& question, const TargetInputs& inputs) {
  OptimizeOptions options = question.options;
  if (question.memory_limit_gb) options.memory_limit_bytes = 1e9 * *question.memory_limit_gb;
  PERFMODEL_TRY(objective, advice_objective(question.objective));
  options.objective = *objective;
  options.graph_file = shell_word(question.graph);
  for (const NamedRewrite& rewrite : question.target.rewrites) {
    options.graph_file += " " + rewrite.name;
  }
  options.predict_flags = predict_flags(question, inputs.target().options.host_scale);
  options.machine_flags = machine_flags(question);
  options.topology = question.target.topology;
  PERFMODEL_TRY(advice, optimize(inputs.program.graph, inputs.target(), options));
  PERFMODEL_TRY_TO(inputs.chosen.check());
  add_layout_advice(question, inputs, *advice);
  // The input's own come first; the prediction that the search begins with repeats some.
  std::vector<std::string> warnings = inputs.warnings;
  add_each_once(warnings, advice->warnings);
  advice->warnings = std::move(warnings);
  return advice;
}

}  // namespace perfmodel
