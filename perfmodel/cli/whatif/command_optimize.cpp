#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "advice_report.hpp"
#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/measured_step_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "optimize/advice_json.hpp"
#include "optimize/answer_optimize.hpp"
#include "rewrites/rewrite_input.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct OptimizeArguments : OptimizeQuestion {
  ReadOptions reading;
  bool json = false;
};

Result<void> run_optimize(const OptimizeArguments& arguments) {
  auto programs = read_programs({arguments.graph}, arguments.reading);
  if (!programs) return Unexpected{programs.error()};
  TargetInputs inputs;
  inputs.program = std::move(programs->front());
  if (auto loaded = load_target(arguments.target, inputs); !loaded) return loaded;
  const auto advice = answer_optimize(arguments, inputs);
  if (!advice) return Unexpected{advice.error()};
  const std::string file = file_name(arguments.graph), &gpu = inputs.target().gpu.name;
  const std::string rewrites = rewrite_line(arguments.target.rewrites);
  if (!arguments.json) {
    return print_report(advice_text(file, rewrites, gpu, *advice, bold_allowed()));
  }
  Json keys = {{"graph", file}, {"gpu", gpu}};
  if (!rewrites.empty()) keys["rewrites"] = rewrite_names(arguments.target.rewrites);
  keys.update(with_digits(advice_json(*advice), Digits::kThreeDecimals));
  return print_document(schemas::kOptimize, keys);
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
  add_rewrite_options(app, arguments->target.rewrites, RewriteFlags::kFirst);
  app.footer(std::string("The ceiling says what each term costs at best; single steps are ranked "
                         "by their own gain;\n"
                         "the combination says what each rewrite adds beside the others. A gain "
                         "that is no larger\n"
                         "than the error of the two predictions is \"within error\".\n") +
             kRewritesRule);
  return {app, [arguments] { return run_optimize(*arguments); }};
}

}  // namespace perfmodel::cli
