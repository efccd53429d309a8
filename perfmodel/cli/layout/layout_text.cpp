#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "layout/layer_kinds.hpp"
#include "layout/layout_request.hpp"
#include "layout/layout_results.hpp"
#include "layout_text.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kGigabyteOfMemory = 1e9;

std::string gigabytes(double bytes) { return fmt::format("{:.1f}", bytes / kGigabyteOfMemory); }

std::string step_words(double ms) {
  return ms >= 1000 ? fmt::format("{:.2f} s", ms / 1000) : fmt::format("{:.1f} ms", ms);
}

// "70.6 G"
std::string count_words(double count) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}}) {
    if (count >= unit) return fmt::format("{:.3g} {}", count / unit, name);
  }
  return fmt::format("{:.0f}", count);
}

// "nemo, attention by cudnn"; without a name for the job the programs that suit its layouts.
std::string software_text(const LayoutReport& report) {
  std::string words = software_words(report);
  if (report.layouts.empty()) return words;
  const LayoutPrediction& first = report.layouts.front().prediction;
  if (first.attention != "eager") words += fmt::format(", attention by {}", first.attention);
  return report.job.software.empty() ? words + " (chosen by layout)" : words;
}

std::string head_text(const LayoutReport& report) {
  const LayoutJob& job = report.job;
  const DecoderModel& model = job.model;
  TextList list;
  std::string words = fmt::format("{}, {} parameters: {} layers of {}", model.name,
                                  count_words(static_cast<double>(parameter_count(model))),
                                  model.layers, model.hidden);
  if (model.experts.experts > 0) {
    words += fmt::format("; {} of {} experts per token, {} parameters", model.experts.top_k,
                         model.experts.experts,
                         count_words(static_cast<double>(active_parameter_count(model))));
  }
  if (job.lora_rank > 0) {
    words += fmt::format("; adapters of rank {} on {}, weights frozen in {} bits", job.lora_rank,
                         job.lora_on_all ? "all layers" : "attention", job.frozen_bits);
  }
  list.row("model", words);
  list.row("machine", fmt::format("{} x {}, {}", report.gpus, report.gpu_title, report.topology));
  list.row("job", fmt::format("{} sequences of {} tokens per step, {}{}, {} attention, gradients "
                              "in {}, {}",
                              job.global_batch, job.sequence, to_string(job.precision),
                              job.compiled ? ", compiled" : "", to_string(job.attention),
                              job.fp32_gradients ? "fp32" : "half", software_text(report)));
  if (job.packed_mean != 1) {
    list.row("documents", fmt::format("attention {} of whole sequences', {} on the slowest rank",
                                      percent(job.packed_mean),
                                      percent(report.layouts.front().prediction.attention_share)));
  }
  if (report.search) {
    const LayoutRanking& search = *report.search;
    list.row("searched",
             fmt::format("{} layouts that divide, {} priced, {} of these fit, {:.1f} s{}",
                         search.considered, search.priced, search.fitting, report.seconds,
                         search.complete ? "" : "; stopped before the end"));
  }
  return "\n" + list.text();
}

std::string zero_words(Sharding zero) {
  return zero == Sharding::kNone ? "-" : std::string(to_string(zero));
}

// Chunks per stage, with the schedule where it is another than 1F1B: "2 zb-v".
std::string chunk_words(const ParallelLayout& layout) {
  const std::string chunks = layout.vp > 1 ? std::to_string(layout.vp) : "";
  if (layout.order == PipelineOrder::k1F1B) return chunks.empty() ? "-" : chunks;
  return fmt::format("{}{}{}", chunks, chunks.empty() ? "" : " ", to_string(layout.order));
}

std::vector<std::string> layout_cells(const ParallelLayout& layout) {
  const auto above_one = [](std::int64_t count) {
    return count > 1 ? std::to_string(count) : std::string("-");
  };
  const std::string again =
      layout.recompute == LayoutRecompute::kNone ? "-" : to_string(layout.recompute);
  return {std::to_string(layout.dp),
          std::to_string(layout.tp),
          std::to_string(layout.pp),
          above_one(layout.cp),
          above_one(layout.ep) +
              (layout.dispatcher ? fmt::format(" {}", to_string(*layout.dispatcher)) : ""),
          chunk_words(layout),
          std::to_string(layout.micro_batch),
          zero_words(layout.zero),
          again + (layout.offload.any() ? fmt::format(", {}", to_string(layout.offload)) : "")};
}

// The last cell of a layout says what it offloads, too.
const char* headed_recompute(const std::vector<RankedLayout>& layouts) {
  const bool any =
      std::ranges::any_of(layouts, [](const auto& one) { return one.layout.offload.any(); });
  return any ? "recompute, offload" : "recompute";
}

std::string ranking_text(const std::vector<RankedLayout>& layouts, bool bold) {
  TextTable table{"#",    "dp",        "tp",    "pp",   "cp",
                  "ep",   "vp",        "micro", "zero", headed_recompute(layouts),
                  "step", "tok/s/GPU", "MFU",   "GB",   "<limited by"};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const LayoutPrediction& made = layouts[i].prediction;
    std::vector<std::string> cells = {std::to_string(i + 1)};
    for (std::string& cell : layout_cells(layouts[i].layout)) cells.push_back(std::move(cell));
    const std::vector<std::string> figures = {
        step_words(made.step_ms), fmt::format("{:.0f}", made.tokens_per_s_per_gpu),
        percent(made.mfu), gigabytes(made.reserved_bytes), std::string(term_words(made.limit))};
    cells.insert(cells.end(), figures.begin(), figures.end());
    table.row(std::move(cells));
  }
  return "\n" + table.text(bold);
}

// At most so many points, spread over the memory.
std::string frontier_text(const std::vector<RankedLayout>& frontier, bool bold) {
  constexpr std::size_t kPoints = 5;
  if (frontier.size() < 2) return "";
  TextTable table{"<Less memory for more time", "memory GB", "step"};
  const std::size_t shown = std::min(kPoints, frontier.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t at = i * (frontier.size() - 1) / (shown - 1);
    const RankedLayout& one = frontier[at];
    table.row({layout_words(one.layout), gigabytes(one.prediction.reserved_bytes),
               step_words(one.prediction.step_ms)});
  }
  return "\n" + table.text(bold);
}

std::string terms_line(const LayoutPrediction& made) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    if (made.terms_ms[i] > 0.0005 * made.step_ms) order.push_back(i);
  }
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return made.terms_ms[a] > made.terms_ms[b]; });
  std::string line;
  for (std::size_t i : order) {
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", term_words(static_cast<LayoutTerm>(i)),
                        percent(made.terms_ms[i] / made.step_ms));
  }
  return line;
}

std::string parts_words(std::span<const LayoutMemoryPart> all, const LayoutPrediction& made) {
  std::string parts;
  for (const auto& [key, words, bytes] : all) {
    if (made.*bytes < 0.05 * kGigabyteOfMemory) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", words, gigabytes(made.*bytes));
  }
  return parts;
}

std::string memory_line(const LayoutPrediction& made) {
  return fmt::format("{} GB reserved ({} allocated) of {}: {}", gigabytes(made.reserved_bytes),
                     gigabytes(made.allocated_bytes), gigabytes(made.device_bytes),
                     parts_words(kLayoutMemoryParts, made));
}

std::string host_line(const LayoutReport& report, const LayoutPrediction& made) {
  const double limit = report.job.host_memory_bytes;
  return fmt::format("{} GB per node{}: {}", gigabytes(made.host_bytes),
                     limit > 0 ? fmt::format(" of {}", gigabytes(limit)) : "",
                     parts_words(kLayoutHostParts, made));
}

std::string levers_line(const RankedLayout& ranked) {
  const auto levers = layout_levers(ranked);
  if (levers.empty()) return "nothing but compute";
  std::string line;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, levers.size()); ++i) {
    line += fmt::format("{}{} (up to {})", i == 0 ? "" : ", then ", levers[i].what,
                        percent(levers[i].share));
  }
  return line;
}

// What would narrow the range most.
std::string open_line(const std::vector<OpenEffect>& open) {
  std::string line;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, open.size()); ++i) {
    line += fmt::format("{}{} ({} of what the range does not know)", i == 0 ? "" : ", then ",
                        open[i].what, percent(open[i].share));
  }
  return line;
}

std::string measured_line(const MeasuredFit& fit) {
  return fmt::format(
      "{} steps, missed by {} as predicted, by {} calibrated, by {} each by the others", fit.steps,
      percent(fit.mape_before), percent(fit.mape_after), percent(fit.mape_left_out));
}

// "612 k", "49.8"
std::string amount_words(double amount) {
  if (amount >= 1e6) return fmt::format("{:.3g} M", amount / 1e6);
  return amount >= 1e4 ? fmt::format("{:.3g} k", amount / 1e3) : fmt::format("{:.3g}", amount);
}

// "21.3 (18.2 to 25.6)"
std::string range_words(const TimeRange& range) {
  return fmt::format("{} ({} to {})", amount_words(range.expected), amount_words(range.low),
                     amount_words(range.high));
}

std::string duration_words(double seconds) {
  if (seconds >= 3600) return fmt::format("{:.3g} h", seconds / 3600);
  return seconds >= 60 ? fmt::format("{:.3g} min", seconds / 60) : fmt::format("{:.3g} s", seconds);
}

std::string checkpoints_line(const CheckpointPlan& plan) {
  std::string line = fmt::format("{:.4g} GB, {:.3g} per rank, written in {}", plan.bytes / 1e9,
                                 plan.bytes_per_rank / 1e9, duration_words(plan.stall_s));
  if (!plan.interval_s) return line;
  return line + fmt::format("; one every {} loses least: {} of the time is training",
                            duration_words(*plan.interval_s), percent(plan.goodput));
}

void add_run(const TrainingRun& run, TextList& list) {
  list.row("run",
           fmt::format("{:.0f} steps, {} days, {} GPU hours{}", run.steps, range_words(run.days),
                       range_words(run.gpu_hours), run.usd ? ", $ " + range_words(*run.usd) : ""));
  list.row("energy", range_words(run.mwh) +
                         " MWh at most: boards at their power limit, without "
                         "hosts, network and cooling");
  if (run.deadline_days) {
    const std::string_view word = !run.meets_deadline()                 ? "missed"
                                  : run.days.high <= *run.deadline_days ? "met"
                                                                        : "met, if barely";
    list.row("deadline", fmt::format("{:.4g} days: {}", *run.deadline_days, word));
  }
  if (run.checkpoints) list.row("checkpoints", checkpoints_line(*run.checkpoints));
}

// The counts that a search for the fewest GPUs tried.
std::string tries_text(const std::vector<DeadlineTry>& tries, bool bold) {
  TextTable table{"GPUs", "step", "days", "GPU hours", "<best layout"};
  for (const DeadlineTry& one : tries) {
    table.row({std::to_string(one.gpus), step_words(one.best.prediction.step_ms),
               amount_words(one.run.days.expected), amount_words(one.run.gpu_hours.expected),
               layout_words(one.best.layout)});
  }
  return "\n" + table.text(bold);
}

std::string layout_details(const LayoutReport& report, const RankedLayout& ranked) {
  const LayoutPrediction& made = ranked.prediction;
  TextList list;
  list.row("time", terms_line(made));
  list.row("memory", memory_line(made));
  if (made.host_bytes > 0) list.row("host memory", host_line(report, made));
  list.row("MFU", fmt::format("{} of the dense peak; {} G FLOP per token (6 N + 6 layers hidden "
                              "sequence); HFU {}",
                              percent(made.mfu),
                              fmt::format("{:.1f}", job_flop_per_token(report.job) / 1e9),
                              percent(made.hfu)));
  list.row("to gain", levers_line(ranked));
  if (!made.stage_layers.empty()) {
    list.row("stages", fmt::format("{} layers", fmt::join(made.stage_layers, ", ")));
  }
  if (report.run) add_run(*report.run, list);
  if (!report.open.empty()) list.row("to measure", open_line(report.open));
  if (report.measured) list.row("measured", measured_line(*report.measured));
  return "\n" + list.text();
}

std::string first_line(const RankedLayout& best) {
  const LayoutPrediction& made = best.prediction;
  std::string text =
      fmt::format("\n  {} per step ({} to {}), {:.0f} tokens/s per GPU, MFU {}\n  {}\n",
                  step_words(made.step_ms), step_words(made.low_ms), step_words(made.high_ms),
                  made.tokens_per_s_per_gpu, percent(made.mfu), layout_words(best.layout));
  if (!made.fits) {
    const bool on_gpu = made.reserved_bytes > made.device_bytes;
    text += on_gpu ? fmt::format("  does not fit: {} GB of {}\n", gigabytes(made.reserved_bytes),
                                 gigabytes(made.device_bytes))
                   : fmt::format("  does not fit: {} GB of host memory per node\n",
                                 gigabytes(made.host_bytes));
  }
  return text;
}

}  // namespace

std::string layout_text(const LayoutReport& report, bool bold) {
  std::string text = warnings_text(report.warnings);
  text += first_line(report.layouts.front()) + head_text(report);
  if (report.layouts.size() > 1) text += ranking_text(report.layouts, bold);
  text += layout_details(report, report.layouts.front());
  if (!report.tries.empty()) text += tries_text(report.tries, bold);
  if (report.search) text += frontier_text(report.search->frontier, bold);
  return text;
}

std::string layout_memory_text(const LayoutReport& report, bool bold) {
  const RankedLayout& first = report.layouts.front();
  const LayoutPrediction& made = first.prediction;
  TextTable table{"<On the fullest rank", "GB"};
  for (const auto& [key, words, bytes] : kLayoutMemoryParts) {
    if (made.*bytes > 0) table.row({std::string(words), gigabytes(made.*bytes)});
  }
  return warnings_text(report.warnings) +
         fmt::format("\n  {}: {} GB reserved of {}\n  {}\n", made.fits ? "fits" : "does not fit",
                     gigabytes(made.reserved_bytes), gigabytes(made.device_bytes),
                     layout_words(first.layout)) +
         head_text(report) + "\n" + table.text(bold);
}

std::string layout_comparison_text(const LayoutReport& report, bool bold) {
  const LayoutPrediction& a = report.layouts[0].prediction;
  const LayoutPrediction& b = report.layouts[1].prediction;
  std::string text = warnings_text(report.warnings);
  text += fmt::format(
      "\n  The second takes {:+.1f} % of the first's time and {:+.1f} % of its "
      "memory.\n",
      100 * (b.step_ms / a.step_ms - 1), 100 * (b.reserved_bytes / a.reserved_bytes - 1));
  text += head_text(report);
  TextTable table{"ms", "first", "second", "difference"};
  const auto row = [&](std::string name, double one, double two) {
    table.row({std::move(name), fmt::format("{:.2f}", one), fmt::format("{:.2f}", two),
               fmt::format("{:+.2f}", two - one)});
  };
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    if (a.terms_ms[i] == 0 && b.terms_ms[i] == 0) continue;
    row(std::string(term_words(static_cast<LayoutTerm>(i))), a.terms_ms[i], b.terms_ms[i]);
  }
  row("step", a.step_ms, b.step_ms);
  text += fmt::format("\n  first   {}\n  second  {}\n\n", layout_words(report.layouts[0].layout),
                      layout_words(report.layouts[1].layout));
  text += table.text(bold);
  TextTable memory{"GB", "first", "second", "difference"};
  const auto bytes_row = [&](std::string name, double one, double two) {
    memory.row({std::move(name), gigabytes(one), gigabytes(two),
                fmt::format("{:+.1f}", (two - one) / kGigabyteOfMemory)});
  };
  for (const auto& [key, words, bytes] : kLayoutMemoryParts) {
    if (a.*bytes > 0 || b.*bytes > 0) bytes_row(std::string(words), a.*bytes, b.*bytes);
  }
  bytes_row("reserved", a.reserved_bytes, b.reserved_bytes);
  if (a.host_bytes + b.host_bytes > 0) bytes_row("host, per node", a.host_bytes, b.host_bytes);
  return text + "\n" + memory.text(bold);
}

std::string layout_sweep_text(const std::string& axis, const std::vector<LayoutSweepRow>& rows,
                              bool bold) {
  const bool any_error =
      std::ranges::any_of(rows, [](const auto& row) { return !row.error.empty(); });
  TextTable table{"<" + axis, "step ms",   "tokens/s",     "tokens/s/GPU",
                  "MFU",      "memory GB", "<best layout", any_error ? "<note" : ""};
  for (const LayoutSweepRow& row : rows) {
    if (!row.best) {
      table.row({row.value, "", "", "", "", "", "", row.error});
      continue;
    }
    const LayoutPrediction& made = row.best->prediction;
    table.row({row.value, fmt::format("{:.1f}", made.step_ms),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu * static_cast<double>(row.gpus)),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu),
               fmt::format("{:.1f} %", 100 * made.mfu),
               fmt::format("{:.1f}", made.reserved_bytes / 1e9), layout_words(row.best->layout),
               row.error});
  }
  return "\n" + table.text(bold);
}

std::string fit_text(const MeasuredFit& fit, bool bold) {
  TextTable errors{"<missed by", "mean", "median"};
  const auto row = [&](const char* what, double mean, double median) {
    errors.row({what, fmt::format("{:.1f} %", 100 * mean), fmt::format("{:.1f} %", 100 * median)});
  };
  row("as predicted", fit.mape_before, fit.median_before);
  row("calibrated", fit.mape_after, fit.median_after);
  row("each by the others", fit.mape_left_out, fit.median_left_out);
  std::string text = fmt::format("\n  {} measured times\n\n{}", fit.steps, errors.text(bold));
  // Those that moved most.
  constexpr std::size_t kShown = 12;
  auto factors = fit.factors;
  std::ranges::stable_sort(factors, [](const auto& a, const auto& b) {
    return std::abs(std::log(a.second)) > std::abs(std::log(b.second));
  });
  TextTable table{"<times the prediction of", "factor"};
  for (std::size_t i = 0; i < std::min(kShown, factors.size()); ++i) {
    table.row({factors[i].first, fmt::format("{:.3f}", factors[i].second)});
  }
  return text + "\n" + table.text(bold);
}

}  // namespace perfmodel::cli
