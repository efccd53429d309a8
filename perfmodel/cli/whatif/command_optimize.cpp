#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "base/progress_bar.hpp"
#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/measured_step_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "optimize/advice_json.hpp"
#include "optimize/answer_optimize.hpp"
#include "perfmodel/detail/advice.hpp"
#include "rewrites/rewrite_input.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

// "-12.3 %", "0.0 %"
std::string advice_saved(double share) {
  return share < 5e-4 ? percent(std::max(share, 0.0) + 0.0) : "-" + percent(share);
}
std::string advice_gib(double bytes) {
  return bytes > 0 ? fmt::format("{:.1f}", bytes / (1024.0 * 1024 * 1024)) : "";
}

std::string advice_sizes(const std::optional<std::int64_t>& batch, std::int64_t gpus,
                         double bytes) {
  std::string text;
  if (batch) text += fmt::format(", {} samples per GPU", *batch);
  if (gpus > 1) text += fmt::format(", {} GPUs", gpus);
  if (bytes > 0) text += fmt::format(", {} GiB", advice_gib(bytes));
  return text;
}

// " (2.98 times as fast, likely 2.80 or more)"
std::string advice_speedup(const Advice& advice, double gain_us) {
  if (!(advice.best_us > 0) || gain_us <= 0) return "";
  return fmt::format(" ({:.2f} times as fast, likely {:.2f} or more{})",
                     advice.baseline_us / advice.best_us,
                     advice.baseline_us / (advice.best_us + advice.best_error_us),
                     advice.best_within_error ? ", within error" : "");
}

std::string advice_head(const std::string& graph_file, const std::string& rewrites,
                        const std::string& gpu, const Advice& advice) {
  TextList list;
  list.row("graph", graph_file);
  list.fact("rewritten by", rewrites);
  list.row("GPU", gpu);
  list.row("objective", std::string(to_string(advice.objective)));
  list.row("step now", fmt::format("{} ms{}", milliseconds(advice.baseline_us),
                                   advice_sizes(advice.baseline_batch, advice.baseline_ranks,
                                                advice.baseline_bytes)));
  const double gain = advice.baseline_us - advice.best_us;
  std::string best = fmt::format("{} ms", milliseconds(advice.best_step_us));
  best += advice_sizes(advice.best_batch, advice.best_ranks, advice.best_bytes);
  if (advice.best_step_us != advice.best_us) {
    best += fmt::format("; {} ms for the samples of now", milliseconds(advice.best_us));
  }
  list.row("best found", best + advice_speedup(advice, gain));
  if (advice.same_numbers_us > 1.001 * advice.best_us) {
    list.row("same numbers", fmt::format("{} ms without what changes results of the program",
                                         milliseconds(advice.same_numbers_us)));
  }
  list.row("searched",
           fmt::format("{} predictions in {:.2f} s{}", advice.evaluations, advice.seconds,
                       advice.complete ? "" : "; the time budget ended the search"));
  return "\n" + list.text();
}

std::string advice_ceiling(const Ceiling& ceiling, bool bold) {
  TextTable table{"if ... took no time", "alone", "then", "step then ms", "of now"};
  for (const CeilingRow& row : ceiling.rows) {
    const double alone = ceiling.step_us > 0 ? row.alone_us / ceiling.step_us : 0;
    table.row({row.what, advice_saved(alone), advice_saved(row.gain_share),
               milliseconds(row.after_us),
               percent(ceiling.step_us > 0 ? row.after_us / ceiling.step_us : 0)});
  }
  if (table.empty()) return "";
  return fmt::format(
      "\n  Where it could go: each row after the ones above\n{}  {}", table.text(bold),
      fmt::format("With all of the critical path free, the second path takes {} ms.\n",
                  milliseconds(ceiling.without_path_us)));
}

std::string advice_steps(const Advice& advice, bool bold) {
  if (advice.steps.empty()) return "";
  TextTable table{"each by itself", "step ms", "batch", "gain", "+-", "memory GiB", "<", "<"};
  for (const AdvisedStep& step : advice.steps) {
    table.row({step.rewrite, milliseconds(step.step_us),
               step.batch ? std::to_string(*step.batch) : "", percent(step.gain_share),
               percent(advice.baseline_us > 0 ? step.error_us / advice.baseline_us : 0),
               advice_gib(step.needed_bytes), step.within_error ? "within error" : "",
               step.same_numbers ? "" : "other numbers"});
  }
  return "\n" + table.text(bold);
}

// The lines of PyTorch below their rewrite, as one block to copy.
std::string advice_code(const std::vector<CombinedStep>& steps) {
  std::string text = "\n  In PyTorch\n";
  for (const CombinedStep& step : steps) {
    text += fmt::format("    # {}\n", step.rewrite);
    std::istringstream lines(step.code);
    for (std::string line; std::getline(lines, line);) text += fmt::format("    {}\n", line);
  }
  return text;
}

std::string advice_combination(const Advice& advice, bool bold) {
  if (advice.combination.empty()) return "\n  No rewrite makes it faster.\n";
  const auto share = [&](double us) {
    return percent(advice.baseline_us > 0 ? us / advice.baseline_us : 0);
  };
  TextTable table{"what to do, in this order", "step then ms", "times", "adds", "+-", "<", "<"};
  for (const CombinedStep& step : advice.combination) {
    table.row({step.rewrite, step.then_us ? milliseconds(*step.then_us) : "",
               step.then_us ? fmt::format("{:.2f}", advice.baseline_us / *step.then_us) : "",
               percent(step.adds_share), share(step.error_us),
               step.within_error     ? "within error"
               : step.others_need_it ? "others need it"
                                     : "",
               step.same_numbers ? "" : "other numbers"});
  }
  return "\n" + table.text(bold) + advice_code(advice.combination) + "\n  " + advice.best_command +
         "\n";
}

// "--precision bf16: precision: expected an fp32 graph": the rewrite is in the row.
std::string advice_reason(const LostMove& move) {
  const std::string name = move.rewrite + ": ";
  const std::size_t at = move.reason.starts_with(name) ? name.size() : 0;
  return fmt::format("{}: {}", to_string(move.why), move.reason.substr(at));
}

// Rewrites in a row that share a reason and were not predicted have one row.
std::string advice_lost(const Advice& advice, bool bold) {
  TextTable table{"tried and lost", "step ms", "<why"};
  for (std::size_t i = 0; i < advice.lost.size();) {
    const LostMove& move = advice.lost[i];
    const std::string reason = advice_reason(move);
    std::size_t alike = 1;
    while (i + alike < advice.lost.size() && !move.step_us && !advice.lost[i + alike].step_us &&
           advice_reason(advice.lost[i + alike]) == reason) {
      ++alike;
    }
    const std::string more = alike > 1 ? fmt::format(" (+{})", alike - 1) : "";
    table.row({move.rewrite + more, move.step_us ? milliseconds(*move.step_us) : "",
               shortened(reason, 62)});
    i += alike;
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

std::string advice_table_plan(const Advice& advice) {
  if (!advice.table_plan) return "";
  const TablePlanAdvice& plan = *advice.table_plan;
  TextList list;
  list.row("sharded", fmt::format("{} ms per batch: {}", milliseconds(plan.plan_us), plan.plan));
  list.row("on every rank", plan.replicated_us
                                ? fmt::format("{} ms per batch", milliseconds(*plan.replicated_us))
                                : "does not fit");
  return "\n  Plan of embedding tables\n" + list.text() + "\n  " + plan.command + "\n";
}

std::string advice_layout_plan(const Advice& advice) {
  if (!advice.layout_plan) return "";
  const LayoutPlanAdvice& plan = *advice.layout_plan;
  TextList list;
  list.row("fastest that fits", fmt::format("{} ms, {:.1f} GB: {}", milliseconds(plan.step_us),
                                            plan.memory_bytes / 1e9, plan.layout));
  list.row("as it is (DDP)", plan.replicated_us
                                 ? fmt::format("{} ms{}", milliseconds(*plan.replicated_us),
                                               plan.replicated_fits ? "" : ", does not fit")
                                 : "no price");
  return "\n  Layout of the whole job, as " + plan.software +
         " runs it (compare these two alone)\n" + list.text() + "\n  " + plan.command + "\n";
}

std::string advice_text(const std::string& graph_file, const std::string& rewrites,
                        const std::string& gpu, const Advice& advice, bool bold) {
  return advice_head(graph_file, rewrites, gpu, advice) + advice_combination(advice, bold) +
         advice_steps(advice, bold) + advice_table_plan(advice) + advice_layout_plan(advice) +
         advice_ceiling(advice.ceiling, bold) + advice_lost(advice, bold) +
         warnings_text(advice.warnings);
}

struct OptimizeArguments : OptimizeQuestion {
  ReadOptions reading;
  bool json = false;
};

Result<void> run_optimize(const OptimizeArguments& arguments) {
  PERFMODEL_TRY(programs, read_programs({arguments.graph}, arguments.reading));
  TargetInputs inputs;
  inputs.program = std::move(programs->front());
  PERFMODEL_TRY_TO(load_target(arguments.target, inputs));
  ProgressBar bar("optimize", 0, ProgressBar::Unit::kTries);
  OptimizeQuestion question = arguments;
  question.options.progress = [&bar](std::size_t done) { bar.update(done); };
  const auto advice = answer_optimize(question, inputs);
  bar.finish();
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
  app.add_argument("graph GRAPH", arguments->graph, "Execution graph or Kineto trace of one rank");
  app.add_option("--gpu NAME", arguments->target.gpu,
                 "Name of a known GPU (see `gpus`), or a GPU file")
      .required();
  app.add_option("--world N", arguments->options.world,
                 "Run the graph of one rank on N data-parallel ranks (DDP)")
      .check(at_least(1));
  app.add_option("--topology NAME", arguments->target.topology,
                 "How the GPUs are connected: a known name or a file (default: the usual node)");
  app.add_option("--allow FAMILY,...", arguments->options.allow,
                 "Families of rewrites to search (default: all that the objective allows): " +
                     fmt::format("{}", fmt::join(advice_families(), ", ")));
  app.add_option("--objective", arguments->objective,
                 "What to make good: the step at its samples, or samples with larger batches "
                 "(and, per GPU hour, fewer GPUs)")
      .check(one_of({"step", "samples-per-s", "samples-per-gpu-hour"}))
      .capture_default_str();
  app.add_option("--memory-limit GB", arguments->memory_limit_gb,
                 "GB (1e9 B) that a step of one GPU may need (default: what its driver shows)")
      .check(above_zero());
  app.add_option("--time-budget S", arguments->options.time_budget_s,
                 "Seconds after which the search answers with what it has")
      .check(above_zero())
      .capture_default_str();
  app.add_option("--beam N", arguments->options.beam,
                 "Sequences that each round of the search starts from")
      .check(at_least(1))
      .capture_default_str();
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
