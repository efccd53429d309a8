#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "advice_report.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "layout/layout_advice.hpp"
#include "perfmodel/optimize.hpp"
#include "target_inputs.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct OptimizeArguments {
  std::string graph, objective = "step";
  TargetArguments target;
  OptimizeOptions options;
  std::optional<double> memory_limit_gb;
  ReadOptions reading;
  bool json = false;
};

// As a shell takes it for one word.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=:@%,";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What `predict` needs to see the same machine.
std::string machine_flags(const OptimizeArguments& arguments) {
  std::string flags = " --gpu " + shell_word(arguments.target.gpu);
  if (!arguments.target.topology.empty())
    flags += " --topology " + shell_word(arguments.target.topology);
  return flags;
}
// `host_scale`: as asked for, or as a measured step tells.
std::string predict_flags(const OptimizeArguments& arguments, double host_scale) {
  std::string flags = machine_flags(arguments);
  if (!arguments.target.overheads.empty())
    flags += " --overheads " + shell_word(arguments.target.overheads);
  if (arguments.target.models != "learned")
    flags += " --models " + shell_word(arguments.target.models);
  if (host_scale != 1) flags += fmt::format(" --scale-host {:g}", host_scale);
  return flags;
}

// Named alone: the search takes seconds, and its prices are of a program of its own.
void add_layout_advice(const OptimizeArguments& arguments, const TargetInputs& inputs,
                       Advice& advice) {
  const auto& allow = arguments.options.allow;
  if (std::ranges::find(allow, "layout") == allow.end()) return;
  auto plan =
      inputs.program.trace
          ? Result<LayoutPlanAdvice>(
                fail(ErrorCode::kImpossible, "a trace does not tell which tensors are the same"))
          : layout_advice(inputs.program.graph, {.gpu = arguments.target.gpu,
                                                 .topology = arguments.target.topology,
                                                 .machine_flags = machine_flags(arguments),
                                                 .world = arguments.options.world,
                                                 .host_scale = arguments.target.host_scale});
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

Result<void> run_optimize(const OptimizeArguments& arguments) {
  TargetInputs inputs;
  auto programs = read_programs({arguments.graph}, arguments.reading);
  if (!programs) return Unexpected{programs.error()};
  inputs.program = std::move(programs->front());
  if (auto loaded = load_target(arguments.target, inputs); !loaded) return loaded;
  OptimizeOptions options = arguments.options;
  if (arguments.memory_limit_gb) options.memory_limit_bytes = 1e9 * *arguments.memory_limit_gb;
  const auto objective = advice_objective(arguments.objective);
  if (!objective) return Unexpected{objective.error()};
  options.objective = *objective;
  options.graph_file = shell_word(arguments.graph);
  options.predict_flags = predict_flags(arguments, inputs.target.options.host_scale);
  options.machine_flags = machine_flags(arguments);
  options.topology = arguments.target.topology;
  auto advice = optimize(inputs.program.graph, inputs.target, options);
  if (!advice) return Unexpected{advice.error()};
  if (auto readable = inputs.chosen.check(); !readable) return readable;
  add_layout_advice(arguments, inputs, *advice);
  // Those of the input first; the prediction that the search begins with repeats some.
  std::vector<std::string> warnings = inputs.warnings;
  for (std::string& warning : advice->warnings) {
    if (std::ranges::find(warnings, warning) == warnings.end()) {
      warnings.push_back(std::move(warning));
    }
  }
  advice->warnings = std::move(warnings);
  const AdviceReport report{.graph_file = file_name(arguments.graph),
                            .gpu = inputs.target.gpu.name,
                            .advice = std::move(*advice)};
  if (arguments.json) return print_document(advice_document(report));
  return print_report(advice_text(report, bold_allowed()));
}

}  // namespace

Command optimize_command(CommandParser parent) {
  auto arguments = std::make_shared<OptimizeArguments>();
  const CommandParser app = parent.add_subcommand(
      "optimize", "What to change: searches for the rewrites that make a step short");
  app.add_option("graph", arguments->graph, "Execution graph or Kineto trace of one rank")
      .required()
      .type_name("GRAPH");
  app.add_option("--gpu", arguments->target.gpu, "Name of a known GPU (see `gpus`), or a GPU file")
      .required()
      .type_name("NAME");
  app.add_option("--world", arguments->options.world,
                 "Run the graph of one rank on N data-parallel ranks (DDP)")
      .check(at_least(1))
      .type_name("N");
  app.add_option("--topology", arguments->target.topology,
                 "How the GPUs are connected: a known name or a file (default: the usual node)")
      .type_name("NAME");
  app.add_option("--allow", arguments->options.allow,
                 "Families of rewrites to search (default: all that the objective allows): " +
                     fmt::format("{}", fmt::join(advice_families(), ", ")))
      .delimiter(',')
      .type_name("FAMILY,...");
  app.add_option("--objective", arguments->objective,
                 "What to make good: the step at its samples, or samples with larger batches "
                 "(and, per GPU hour, fewer GPUs)")
      .check(one_of({"step", "samples-per-s", "samples-per-gpu-hour"}))
      .capture_default_str();
  app.add_option("--memory-limit", arguments->memory_limit_gb,
                 "GB (1e9 B) that a step of one GPU may need (default: what its driver shows)")
      .check(above_zero())
      .type_name("GB");
  app.add_option("--time-budget", arguments->options.time_budget_s,
                 "Seconds after which the search answers with what it has")
      .check(above_zero())
      .capture_default_str()
      .type_name("S");
  app.add_option("--beam", arguments->options.beam,
                 "Sequences that each round of the search starts from")
      .check(at_least(1))
      .capture_default_str()
      .type_name("N");
  add_overheads_option(app, arguments->target.overheads, kOverheadsHelp);
  add_measured_step(app, arguments->target.measured,
                    add_scale_host(app, arguments->target.host_scale));
  add_models_option(app, arguments->target.models);
  add_reading(app, arguments->reading);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(
      "The ceiling says what each term costs at best; single steps are ranked by their own gain;\n"
      "the combination says what each rewrite adds beside the others. A gain that is no larger\n"
      "than the error of the two predictions is \"within error\".");
  return {app, [arguments] { return run_optimize(*arguments); }};
}

}  // namespace perfmodel::cli
