#include "advice_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string advice_head(const std::string& graph_file, const std::string& gpu,
                        const Advice& advice) {
  TextList list;
  list.row("graph", graph_file);
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
  list.row("best found",
           fmt::format("{} ({:.1f} % less, +- {:.1f} %{})", best,
                       advice.baseline_us > 0 ? 100 * gain / advice.baseline_us : 0,
                       advice.baseline_us > 0 ? 100 * advice.best_error_us / advice.baseline_us : 0,
                       advice.best_within_error ? ", within error" : ""));
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
      "\n  Where it could go: each row beside those above\n{}  {}", table.text(bold),
      fmt::format("With all of the critical path free, the second path takes {} ms.\n",
                  milliseconds(ceiling.without_path_us)));
}

std::string advice_steps(const Advice& advice, bool bold) {
  if (advice.steps.empty()) return "\n  No single rewrite helps.\n";
  TextTable table{"single step", "step ms", "batch", "gain", "+-", "memory GiB", "<", "<"};
  for (const AdvisedStep& step : advice.steps) {
    table.row({step.rewrite, milliseconds(step.step_us),
               step.batch ? std::to_string(*step.batch) : "", percent(step.gain_share),
               percent(advice.baseline_us > 0 ? step.error_us / advice.baseline_us : 0),
               advice_gib(step.needed_bytes), step.within_error ? "within error" : "",
               step.same_numbers ? "" : "other numbers"});
  }
  return "\n" + table.text(bold);
}

std::string advice_combination(const Advice& advice, bool bold) {
  if (advice.combination.empty()) return "\n  No combination helps.\n";
  TextTable table{"best combination", "adds", "+-", "<", "<in PyTorch"};
  for (const CombinedStep& step : advice.combination) {
    table.row({step.rewrite, percent(step.adds_share),
               percent(advice.baseline_us > 0 ? step.error_us / advice.baseline_us : 0),
               step.within_error     ? "within error"
               : step.others_need_it ? "others need it"
                                     : "",
               shortened(step.code, 40)});
  }
  return "\n" + table.text(bold) + "\n  " + advice.best_command + "\n";
}

std::string advice_lost(const Advice& advice, bool bold) {
  TextTable table{"tried and lost", "step ms", "<why"};
  for (const LostMove& move : advice.lost) {
    table.row({move.rewrite, move.step_us ? milliseconds(*move.step_us) : "",
               shortened(fmt::format("{}: {}", to_string(move.why), move.reason), 62)});
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

std::string advice_table_plan(const Advice& advice) {
  if (!advice.table_plan) return "";
  const TablePlanAdvice& plan = *advice.table_plan;
  TextList list;
  list.row("tables alone",
           fmt::format("{} ms per batch: {}", milliseconds(plan.plan_us), plan.plan));
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

}  // namespace

std::string advice_text(const std::string& graph_file, const std::string& gpu, const Advice& advice,
                        bool bold) {
  return advice_head(graph_file, gpu, advice) + advice_ceiling(advice.ceiling, bold) +
         advice_steps(advice, bold) + advice_combination(advice, bold) + advice_table_plan(advice) +
         advice_layout_plan(advice) + advice_lost(advice, bold) + warnings_text(advice.warnings);
}

}  // namespace perfmodel::cli
