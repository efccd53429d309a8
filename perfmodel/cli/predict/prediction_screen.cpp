#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <utility>

#include "base/plain_text.hpp"
#include "cli/shared/prediction_parts.hpp"
#include "explain/op_title.hpp"
#include "perfmodel/detail/explanation.hpp"
#include "predict/prediction_results.hpp"
#include "prediction_report.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kScreenLines = 40;
constexpr std::size_t kVersionLines = 2;  // lines of print_report()
constexpr std::size_t kMostRows = 5, kMostWarnings = 4, kLinesOfWarning = 2;
constexpr std::size_t kValueWidth = 85;   // next to the longest name of a fact
constexpr double kLeastShownCost = 1e-3;  // share of the step
constexpr double kLeastWritten = 0.001;   // smallest value shown: TFLOP/s, GiB

// The rank that is shown, and how.
struct View {
  const PredictionReport& report;
  const RankPrediction& rank;
  const Prediction& p;
  TimeUnit time;
  std::size_t rows;
  bool exact;  // no more rows than that
  bool bold;

  // Rows shown of a table of so many; "(1 more)" would take the place of that row.
  std::size_t rows_of(std::size_t count) const {
    return count <= rows || (count == rows + 1 && !exact) ? count : rows;
  }
};

std::string emphasised(std::string_view words, bool bold) {
  return fmt::format("  {}{}{}\n", bold ? "\033[1m" : "", words, bold ? "\033[0m" : "");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t line_count(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

// ---- the step and its facts --------------------------------------------------------------------

// " (3.9 to 6.4)".
std::string range_of_step(const View& view) {
  if (view.p.e2e_high_us <= view.p.e2e_low_us) return "";
  return fmt::format(" ({} to {})", view.time(view.p.e2e_low_us), view.time(view.p.e2e_high_us));
}

// "; 4.058 to 6.097 ms with 0.7 to 1.5 times the host time".
std::string range_of_hosts(const View& view) {
  const auto& hosts = view.p.host_sensitivity;
  if (hosts.empty()) return "";
  const std::string low = view.time(hosts.front().e2e_us), high = view.time(hosts.back().e2e_us);
  return fmt::format("; {} with {} to {} times the host time",
                     low == high ? "the same" : low + " to " + high + " " + view.time.name(),
                     hosts.front().scale, hosts.back().scale);
}

// The range of the step includes the range over hosts, which is left out if the line has no room.
std::string headline(const View& view) {
  const std::size_t ranks = view.report.ranks.size();
  const char* unit = view.report.ranks.front().mixed ? "kind" : "rank";
  const std::string step =
      fmt::format("{} per batch{}{}", view.time.with_name(view.p.e2e_us), range_of_step(view),
                  ranks > 1 ? ", slowest of " + counted(ranks, unit) : "");
  const std::string hosts = range_of_hosts(view);
  constexpr std::size_t kRoom = kLineWidth - 2;
  return emphasised(step.size() + hosts.size() > kRoom ? step : step + hosts, view.bold);
}

std::string host(const RankPrediction& rank) {
  std::string text = rank.overheads_file;
  if (rank.overheads_file == rank.graph_file) {
    text += rank.without_collector ? ", without its profiler" : ", slowed by its profiler";
  }
  if (rank.overheads_method == OverheadMethod::kLin) text += ", method lin";
  if (rank.host_scale != 1) {
    text += fmt::format(", its times multiplied by {}", rank.host_scale);
  }
  return text;
}

// The steps of a trace as they were recorded; empty: of a graph.
std::string recorded(const View& view) {
  if (!view.rank.recorded_us) return "";
  return fmt::format("{} per batch, under the profiler",
                     view.time.with_name(*view.rank.recorded_us));
}

// Empty if all prices come from the default models.
std::string kernel_models(const View& view) {
  if (!view.rank.kernel_times_file.empty()) {
    const bool some = view.report.use == KernelTimes::Use::kComm;
    return fmt::format("{}as traced in {}", some ? "collectives " : "",
                       view.rank.kernel_times_file);
  }
  return view.report.models == "learned" ? "" : view.report.models + " models";
}

std::string iterations(const View& view) {
  const auto& all = view.p.iterations;
  if (all.size() < 2) return "";
  const auto [low, high] =
      std::ranges::minmax(all, {}, [](const Prediction::Iteration& one) { return one.e2e_us; });
  return fmt::format("mean of {}, which take {} to {}", all.size(), view.time(low.e2e_us),
                     view.time.with_name(high.e2e_us));
}

std::string ranks(const View& view) {
  if (view.p.scaled_out) {
    const ScaledOut& scaled = *view.p.scaled_out;
    return fmt::format("{} on {} with {}, {}", scaled.world,
                       counted(static_cast<std::size_t>(scaled.nodes), "node"),
                       to_string(scaled.strategy), counted(scaled.collectives, "collective"));
  }
  if (!view.report.job) return "";
  const JobReport& job = *view.report.job;
  std::string text = "imbalance " + percent(job.imbalance);
  if (job.straggler >= 0) {
    text += fmt::format("; without waiting for rank {} a step takes {} less on average",
                        job.straggler, view.time.with_name(job.straggler_saving_us));
  }
  return text;
}

std::string samples(const View& view) {
  const auto rate = view.p.samples_per_s();
  if (!rate) return "";
  const std::string batch = "batch " + grouped(*view.p.batch);
  if (view.p.ranks == 1) return fmt::format("{}, {}", rate_text(*rate), batch);
  return fmt::format("{}; {} on each of {} GPUs, {} each", rate_text(*rate),
                     rate_text(*view.p.samples_per_s_per_gpu()), view.p.ranks, batch);
}

std::string tokens(const View& view) {
  const auto rate = view.report.tokens_per_s();
  if (!rate) return "";
  return fmt::format("{}, {} per sample", rate_text(*rate), grouped(*view.report.work.tokens));
}

std::string tflop(const View& view) {
  const auto rate = view.report.tflop_per_s();
  if (!rate) return "";
  std::string text =
      (*rate < kLeastWritten ? fmt::format("below {}", kLeastWritten) : rate_text(*rate)) +
      (view.p.ranks > 1 ? " per GPU" : "");
  if (const auto mfu = view.report.mfu()) {
    text += fmt::format(", {} {} of the dense peak of {:.4g} ({})",
                        *mfu > 1 ? "FLOP counted are" : "MFU", percent(*mfu),
                        view.report.work.peak.value / 1e12, view.report.work.peak_name);
  }
  return text;
}

std::string memory(const PredictedMemory& memory) {
  if (!(memory.peak_allocated_bytes > 0)) return "";
  const auto gib = [](double bytes) {
    const double value = bytes / (1 << 30);
    return value > 0 && value < kLeastWritten ? fmt::format("below {}", kLeastWritten)
                                              : rough_gib(bytes);
  };
  return fmt::format("{} GiB of {:.4g} GiB: {} whatever the batch, {} activations{}",
                     gib(memory.needed_bytes()), memory.device_bytes / (1 << 30),
                     gib(memory.static_bytes()), gib(memory.activation_bytes),
                     memory.fits() ? "" : "; it does not fit");
}

std::string limited_by_host(const View& view, const Explanation& made) {
  std::string text = fmt::format("the host, busy for {}", percent(made.bound_share));
  const auto us = [&](const HostTerm& at) {
    return view.p.terms_us[static_cast<std::size_t>(at.term)];
  };
  const HostTerm& most = *std::ranges::max_element(kHostTerms, {}, us);
  if (us(most) > 0) {
    text += fmt::format("; most of it {} ({})", most.meaning, view.time.with_name(us(most)));
  }
  return text;
}

// "gemm kernels, busy for 80.1 %, bound by compute".
std::string limited_by_kernels(const View& view, const Explanation& made) {
  if (made.bound == "device") return fmt::format("the GPU, busy for {}", percent(made.bound_share));
  const bool alike = !made.path.empty() && made.path.front().name == "host";
  std::string text = alike ? "host and GPU alike; " : "";
  const std::string share = percent(made.bound_share);
  if (made.bound == to_string(KernelFamily::kCollective)) {
    return text + fmt::format("collectives, busy for {}", share);
  }
  text += fmt::format("{} kernels, busy for {}", made.bound, share);
  for (const FamilyTotal& family : totals_by_family(view.p)) {
    if (to_string(family.family) != made.bound || family.bound == Bound::kMeasured) continue;
    text += fmt::format(", bound by {}", to_string(family.bound));
  }
  return text;
}

std::string limited_by(const View& view, const Explanation& made) {
  return made.bound == "host" ? limited_by_host(view, made) : limited_by_kernels(view, made);
}

std::string collectives(const View& view) {
  const RankReport& c = view.p.communication;
  if (c.collectives == 0) return "";
  return fmt::format("{} ({}), of it {} beside no other GPU work",
                     view.time.with_name(c.transfer_us), percent_of(c.transfer_us, view.p.e2e_us),
                     view.time.with_name(c.exposed_us));
}

// The costs of parallel training besides its collectives.
std::string parallel_costs(const View& view) {
  const Prediction::ParallelCosts& costs = view.p.parallel;
  std::string text;
  for (const auto& [us, what] :
       {std::pair(costs.copies_us, "copies"), std::pair(costs.beside_us, "kernels beside"),
        std::pair(costs.slowest_us, "slowest board")}) {
    if (us < kLeastShownCost * view.p.e2e_us) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, view.time.with_name(us));
  }
  if (text.empty() || !view.p.scaled_out) return text;
  return fmt::format("{} ({})", text, view.p.scaled_out->network);
}

std::string busy(const View& view) {
  const Prediction& p = view.p;
  return fmt::format("GPU {} ({}), host {} ({})", view.time.with_name(p.gpu_active_us),
                     percent_of(p.gpu_active_us, p.e2e_us), view.time.with_name(p.cpu_us),
                     percent_of(p.cpu_us, p.e2e_us));
}

std::string facts(const View& view, const Explanation& made) {
  TextList list;
  const auto fact = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) list.row(name, shortened(plain_text(value), kValueWidth));
  };
  const bool several = view.report.ranks.size() > 1;
  fact(several ? "slowest" : "graph", graph_title(view.rank));
  fact("rewritten by", fmt::format("{}", fmt::join(view.report.rewrites, " ")));
  fact("GPU", fmt::format("{} ({})", view.report.gpu.title, view.report.gpu.name));
  fact("host", host(view.rank));
  fact("recorded", recorded(view));
  fact("kernels", kernel_models(view));
  fact("iterations", iterations(view));
  fact("ranks", ranks(view));
  fact("stragglers", drawn_text(view.report));
  fact("samples/s", samples(view));
  fact("tokens/s", tokens(view));
  fact("TFLOP/s", tflop(view));
  fact("memory", memory(view.p.memory));
  fact("limited by", limited_by(view, made));
  fact("busy", busy(view));
  fact("power", power_text(view.p, view.report.gpu));
  fact("collectives", collectives(view));
  fact("besides", parallel_costs(view));
  each_titled_figure(view.p, fact);
  return "\n" + list.text();
}

// ---- tables ------------------------------------------------------------------------------------

// If there are more ranks than rows, shows those that hold the others up: ranks that wait least for
// others, then the slowest.
std::string table_of_ranks(const View& view) {
  const auto& all = view.report.ranks;
  if (all.size() < 2 || view.rows == 0) return "";
  std::vector<std::size_t> shown(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) shown[i] = i;
  std::ranges::stable_sort(shown, {}, [&](std::size_t i) {
    const Prediction& p = all[i].prediction;
    return std::pair(p.communication.waiting_us, -p.e2e_us);
  });
  shown.resize(view.rows_of(shown.size()));
  std::ranges::sort(shown);
  TextTable table{"Ranks",      view.time.name(), "GPU busy", "host busy",
                  "for others", "exposed",        "came last"};
  for (std::size_t i : shown) {
    const Prediction& p = all[i].prediction;
    const RankReport& c = p.communication;
    table.row({rank_title(view.report, i), view.time(p.e2e_us), view.time(p.gpu_active_us),
               view.time(p.cpu_us), view.time(c.waiting_us), view.time(c.exposed_us),
               fmt::format("{} of {}", c.last_arrivals, c.collectives)});
  }
  if (shown.size() < all.size()) {
    table.row({fmt::format("({} more)", all.size() - shown.size())});
  }
  return "\n" + table.text(view.bold);
}

std::string table_of_kernels(const View& view) {
  const auto families = totals_by_family(view.p);
  if (families.empty() || view.rows == 0) return "";
  TextTable table{"GPU work", "count", view.time.name(), "share",
                  "low",      "high",  "<bound",         "<model"};
  FamilyTotal rest;  // its low and high: how far below and above its time
  const std::size_t rows = view.rows_of(families.size());
  for (std::size_t i = 0; i < families.size(); ++i) {
    const FamilyTotal& family = families[i];
    if (i >= rows) {
      rest.count += family.count;
      rest.time_us += family.time_us;
      rest.low_us = std::hypot(rest.low_us, family.time_us - family.low_us);
      rest.high_us = std::hypot(rest.high_us, family.high_us - family.time_us);
      continue;
    }
    table.row(family_cells(family, view.time, view.p.kernel_sum_us));
  }
  if (families.size() > rows) {
    table.row({fmt::format("({} more)", families.size() - rows), count_text(rest.count),
               view.time(rest.time_us), percent_of(rest.time_us, view.p.kernel_sum_us),
               view.time(rest.time_us - rest.low_us), view.time(rest.time_us + rest.high_us)});
  }
  return "\n" + table.text(view.bold);
}

// Most host time first if the host limits the step, else most GPU time.
std::string table_of_ops(const View& view, bool by_host) {
  auto totals = totals_by_op(view.p);
  if (totals.empty() || view.rows == 0) return "";
  if (!by_host) std::ranges::stable_sort(totals, std::ranges::greater{}, &OpTotal::device_us);
  const auto time = [&](double us) { return us > 0 ? view.time(us) : "-"; };
  const std::string unit = view.time.name();
  TextTable table{by_host ? "Ops, by host time" : "Ops, by GPU time", "count",
                  by_host ? "host " + unit : "GPU " + unit, by_host ? "GPU" : "host"};
  const auto row = [&](const std::string& name, const OpTotal& op) {
    const double host_us = op.host_us + op.wait_us;
    table.row({name, count_text(op.count), time(by_host ? host_us : op.device_us),
               time(by_host ? op.device_us : host_us)});
  };
  const std::size_t rows = view.rows_of(totals.size());
  for (std::size_t i = 0; i < rows; ++i) row(op_title(totals[i].name), totals[i]);
  if (totals.size() > rows) {
    row(fmt::format("({} more names)", totals.size() - rows),
        sum_of(std::span(totals).subspan(rows)));
  }
  return "\n" + table.text(view.bold);
}

std::string coverage(const View& view) {
  constexpr std::size_t kNames = 2;
  std::string text = "\n";
  if (!view.p.ops.empty()) {  // method lin keeps no account
    const Prediction::Coverage& c = view.p.coverage;
    const auto without = unmodelled_ops(c);
    const std::string line =
        fmt::format("Coverage: {} of the time has a model; {}", percent(c.modelled_time_fraction),
                    without.empty() ? "every op has one" : "none for " + joined(without, kNames));
    text += "  " + plain_text(line) + "\n";
    if (const std::string basis = basis_of_prices(c); !basis.empty()) {
      text += "  Prices rest on measurements of: " + basis + "\n";
    }
  }
  return text +
         "  More: --full (host terms and phases, critical path, whole tables), --json, --timeline "
         "FILE\n";
}

std::string below_warnings(const View& view) {
  const Explanation made = explain(view.p);
  return "\n" + headline(view) + facts(view, made) + table_of_ranks(view) + table_of_kernels(view) +
         table_of_ops(view, made.bound == "host") + coverage(view);
}

// ---- warnings ----------------------------------------------------------------------------------

// A warning in at most two lines; a cut one ends in "…".
std::string warning_lines(const std::string& warning) {
  const auto lines = lines_of(wrapped(warning, "  - ", 4));
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kLinesOfWarning); ++i) {
    const bool cut = i + 1 == kLinesOfWarning && lines.size() > kLinesOfWarning;
    text += (cut ? shortened(lines[i] + " …", kLineWidth) : lines[i]) + "\n";
  }
  return text;
}

// As many warnings as fit, at least one; with the heading at most `room` lines, except for that
// one.
std::string warnings(const std::vector<std::string>& all, std::size_t room, bool bold) {
  if (all.empty()) return "";
  std::string text;
  std::size_t shown = 0;
  for (const std::string& warning : all) {
    const std::string lines = warning_lines(warning);
    const std::size_t more = shown + 1 < all.size() ? 1 : 0;  // "and N more"
    const std::size_t taken = 2 + line_count(text) + line_count(lines) + more;
    if (shown == kMostWarnings || (shown > 0 && taken > room)) break;
    text += lines;
    ++shown;
  }
  if (shown < all.size()) text += fmt::format("  - and {} more: --full\n", all.size() - shown);
  return "\n" + emphasised("Warnings", bold) + text;
}

// No line is wider than a screen, whatever files and ops are called.
std::string clipped(const std::string& text) {
  std::string made;
  for (const std::string& line : lines_of(text)) {
    // Bold lines are headings; their escapes have no width.
    made += (line.find('\033') == line.npos ? shortened(line, kLineWidth) : line) + "\n";
  }
  return made;
}

}  // namespace

std::string short_prediction_text(const PredictionReport& report, std::optional<std::size_t> top,
                                  bool bold) {
  const RankPrediction& rank = report.ranks[report.slowest()];
  View view{.report = report,
            .rank = rank,
            .p = rank.prediction,
            .time = TimeUnit(rank.prediction.e2e_us),
            .rows = top.value_or(kMostRows),
            .exact = top.has_value(),
            .bold = bold};
  constexpr std::size_t kLines = kScreenLines - kVersionLines;
  const std::size_t least = line_count(warnings(report.warnings, 0, false));
  std::string below = below_warnings(view);
  while (!top && view.rows > 1 && line_count(below) + least > kLines) {
    --view.rows;
    below = below_warnings(view);
  }
  const std::size_t room = std::max(least, kLines - std::min(kLines, line_count(below)));
  return clipped(warnings(report.warnings, room, bold) + below);
}

}  // namespace perfmodel::cli
