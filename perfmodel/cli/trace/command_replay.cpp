#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/critical_path_text.hpp"
#include "cli/shared/read_files.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/replay.hpp"
#include "replay/replay_results.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kMostScale = 1e6;

struct ReplayArguments {
  std::vector<std::string> traces, graphs;
  std::string timeline, chakra;
  std::shared_ptr<Anonymizer> anonymizer;
  ReplayOptions options;
  ReadOptions reading;
  bool json = false;
  std::size_t top = 10;
};

std::string deviation(double fraction) {
  const double shown = std::round(1e4 * fraction) / 100;
  return fmt::format("{:+.2f} %", shown == 0 ? 0.0 : shown);  // no minus zero
}

class Renderer {
 public:
  Renderer(const Replay& replay, const ReplayOptions& options, std::size_t top, bool bold)
      : replay_(replay), options_(options), top_(top), bold_(bold) {
    what_if_ =
        options.scale_kernels != 1 || options.scale_host != 1 || options.scale_unrecorded != 1;
  }

  std::string run() {
    head();
    if (replay_.ranks.size() > 1) ranks();
    if (replay_.ranks.size() == 1 || !single_iterations()) {
      for (const auto& rank : replay_.ranks) iterations(rank);
    }
    const auto slowest = std::max_element(
        replay_.ranks.begin(), replay_.ranks.end(),
        [](auto& a, auto& b) { return a.critical_path.step_us < b.critical_path.step_us; });
    text_ += critical_path_text(
        slowest->critical_path,
        replay_.ranks.size() > 1 ? "last iteration of " + label(*slowest) : "last iteration", top_,
        bold_);
    return std::move(text_) + warnings_text(replay_.warnings);
  }

 private:
  static std::string label(const Replay::Rank& rank) {
    return rank.rank >= 0 ? fmt::format("rank {}", rank.rank) : file_name(rank.source);
  }

  void head() {
    TextList head;
    if (replay_.ranks.size() == 1) head.row("trace", file_name(replay_.ranks[0].source));
    if (options_.scale_kernels != 1) {
      head.row("kernels", fmt::format("× {} (collectives, copies and sets as measured)",
                                      options_.scale_kernels));
    }
    if (options_.scale_host != 1) {
      head.row("host", fmt::format("× {} (data loading as measured)", options_.scale_host));
    }
    if (options_.scale_unrecorded != 1) {
      head.row("unrecorded work", fmt::format("× {}", options_.scale_unrecorded));
    }
    steps(head);
    if (replay_.job) {
      const JobReport& job = *replay_.job;
      head.row("slowest rank", milliseconds(job.step_us) + " ms per step");
      head.row("imbalance", percent(job.imbalance) + " (slowest rank's own time over the mean)");
      if (job.straggler >= 0) {
        head.row("straggler",
                 fmt::format("rank {}: not to wait for it would save {} ms per step on average",
                             job.straggler, milliseconds(job.straggler_saving_us)));
      }
      head.row("collectives",
               fmt::format("{} met, {} stand as measured", replay_.collectives_matched,
                           replay_.collectives_unmatched));
    }
    text_ += "\n" + head.text();
  }

  // The step, the time that it is compared with, and the period of the device.
  void steps(TextList& head) const {
    const Replay::Medians& median = replay_.median;
    const bool measured = median.measured_us > 0;
    const auto beside = [](double us, double of, std::string_view what) {
      return fmt::format("{} ms {} ({})", milliseconds(of), what,
                         deviation(of > 0 ? us / of - 1 : 0));
    };
    std::string step = milliseconds(median.replayed_us) + " ms median, ";
    if (what_if_) {
      step += beside(median.replayed_us, median.unscaled_us, "as recorded");
    } else if (measured) {
      step += beside(median.replayed_us, median.measured_us, "measured");
    } else {
      step += "not measured";
    }
    if (median.left_out > 0) {
      step += fmt::format("; without {} from before the launch queue was full",
                          counted(median.left_out, "iteration"));
    }
    head.row("step", step);
    if (median.measured_device_period_us > 0) {
      head.row("GPU period",
               fmt::format("{} ms median, {}", milliseconds(median.replayed_device_period_us),
                           beside(median.replayed_device_period_us,
                                  median.measured_device_period_us, "measured")));
    }
    if (measured) {
      head.row("replay error",
               fmt::format("{:.2f} % mean, {:.2f} % worst of {}{}", 100 * replay_.mean_abs_error,
                           100 * worst(), counted(median.iterations + median.left_out, "iteration"),
                           what_if_ ? " as recorded" : ""));
    }
    if (replay_.unrecorded_device_us > 0) {
      head.row("unrecorded work",
               milliseconds(replay_.unrecorded_device_us) + " ms of the device per iteration");
    }
  }

  // A what-if is compared with the replay as recorded: the replay's error is no change.
  std::string before() const { return what_if_ ? "as recorded" : "measured"; }
  std::string before(const Replay::Iteration& it) const {
    if (what_if_) return milliseconds(it.unscaled_us);
    return it.measured_us > 0 ? milliseconds(it.measured_us) : "not known";
  }
  std::string difference(const Replay::Iteration& it) const {
    if (what_if_) return deviation(it.change());
    return it.measured_us > 0 ? deviation(it.error()) : "";
  }

  double worst() const {
    double worst = 0;
    for (const auto& rank : replay_.ranks) worst = std::max(worst, rank.worst_abs_error);
    return worst;
  }

  bool single_iterations() const {
    return std::all_of(replay_.ranks.begin(), replay_.ranks.end(),
                       [](const Replay::Rank& rank) { return rank.iterations.size() == 1; });
  }

  void ranks() {
    const bool single = single_iterations();
    TextTable table{"Ranks, ms",
                    single ? before() : "",
                    single ? (what_if_ ? "what-if" : "replayed") : "",
                    single ? (what_if_ ? "change" : "error") : "",
                    "transfer",
                    "waiting",
                    "exposed",
                    "came last",
                    "others waited"};
    for (const auto& rank : replay_.ranks) {
      const RankReport& c = rank.communication;
      const auto& it = rank.iterations.front();
      table.row({label(rank), single ? before(it) : "", single ? milliseconds(it.replayed_us) : "",
                 single ? difference(it) : "", milliseconds(c.transfer_us),
                 milliseconds(c.waiting_us), milliseconds(c.exposed_us),
                 fmt::format("{} of {}", c.last_arrivals, c.collectives),
                 milliseconds(c.caused_us)});
    }
    text_ += "\n" + table.text(bold_);
  }

  void iterations(const Replay::Rank& rank) {
    bool device = false, loading = false;
    for (const auto& iteration : rank.iterations) {
      device |= iteration.measured_device_period_us > 0;
      loading |= iteration.data_loading_us > 0;
    }
    TextTable table{replay_.ranks.size() > 1 ? "Iterations of " + label(rank) : "Iterations",
                    before() + " ms",
                    what_if_ ? "what-if ms" : "replayed ms",
                    what_if_ ? "change" : "error",
                    device ? "GPU period ms" : "",
                    device ? (what_if_ ? "what-if ms" : "replayed ms") : "",
                    loading ? "data loading ms" : ""};
    for (std::size_t i = 0; i < rank.iterations.size(); ++i) {
      // Long runs: the first and the last ones tell the story.
      const std::size_t shown = std::max<std::size_t>(top_, 4);
      if (rank.iterations.size() > shown && i == shown - 1) {
        table.row(
            {fmt::format("({} more)", rank.iterations.size() - shown), "", "", "", "", "", ""});
      }
      if (i + 1 >= shown && i + 1 < rank.iterations.size()) continue;
      const auto& it = rank.iterations[i];
      const bool period = it.measured_device_period_us > 0;
      // Iterations by their optimizer's name are all called the same.
      const bool same_names = rank.iterations.size() > 1 && it.name == rank.iterations[0].name &&
                              it.name == rank.iterations.back().name;
      table.row({same_names ? fmt::format("{}  {}", i, it.name) : it.name, before(it),
                 milliseconds(it.replayed_us), difference(it),
                 period ? milliseconds(it.measured_device_period_us) : "",
                 period ? milliseconds(it.replayed_device_period_us) : "",
                 loading ? milliseconds(it.data_loading_us) : ""});
    }
    text_ += "\n" + table.text(bold_);
  }

  const Replay& replay_;
  const ReplayOptions& options_;
  std::size_t top_;
  bool bold_, what_if_ = false;
  std::string text_;
};

Result<Replay> replay_files(const ReplayArguments& arguments) {
  PERFMODEL_TRY_TO(all_different(arguments.traces));
  PERFMODEL_TRY(chakra, are_chakra_files(arguments.traces));
  if (*chakra) {
    if (arguments.timeline.empty() && arguments.chakra.empty() && arguments.graphs.empty()) {
      return replay_chakra_files(arguments.traces, arguments.reading, arguments.options);
    }
    return decline(
        "expected Kineto traces for --timeline, --chakra and --graph, found Chakra traces");
  }
  Anonymizer* const anonymizer = arguments.anonymizer.get();
  PERFMODEL_TRY(traces, read_trace_files(arguments.traces, arguments.reading, anonymizer));
  std::vector<ExecutionGraph> graphs;
  for (const std::string& file : arguments.graphs) {
    PERFMODEL_TRY(graph, read_execution_graph(file, arguments.reading));
    if (anonymizer != nullptr) anonymize(*graph, *anonymizer);
    graphs.push_back(std::move(*graph));
  }
  ReplayOptions options = arguments.options;
  options.graphs = graphs;
  options.keep_timeline = !arguments.timeline.empty();
  options.keep_chakra = !arguments.chakra.empty();
  return replay(*traces, options);
}

Result<void> run_replay(const ReplayArguments& arguments) {
  PERFMODEL_TRY(replayed, replay_files(arguments));
  if (replayed->timeline) PERFMODEL_TRY_TO(write_timeline(*replayed->timeline, arguments.timeline));
  if (!arguments.chakra.empty()) PERFMODEL_TRY_TO(write_chakra(replayed->chakra, arguments.chakra));
  if (arguments.json) {
    return print_document(schemas::kReplay, replay_json(*replayed, arguments.options));
  }
  return print_report(Renderer(*replayed, arguments.options, arguments.top, bold_allowed()).run());
}

}  // namespace

Command replay_command(CommandParser parent) {
  auto arguments = std::make_shared<ReplayArguments>();
  const CommandParser app = parent.add_subcommand(
      "replay", "Schedule traces again from their own durations, with waits as edges");
  app.add_argument("TRACE", arguments->traces,
                   "Kineto traces (.json or .json.gz) or Chakra traces (.et); several are ranks of "
                   "one job");
  app.add_option("--scale-kernels X", arguments->options.scale_kernels,
                 "Multiply kernels that are neither collectives nor copies nor sets")
      .check(between(0, kMostScale))
      .capture_default_str();
  app.add_option("--scale-host X", arguments->options.scale_host,
                 "Multiply the host's own time (data loading stays)")
      .check(between(0, kMostScale))
      .capture_default_str();
  app.add_option("--scale-unrecorded X", arguments->options.scale_unrecorded,
                 "Multiply device work that the trace does not hold (nodes of captured graphs, "
                 "what was launched before)")
      .check(between(0, kMostScale))
      .capture_default_str();
  app.add_flag("--force", arguments->options.force,
               "Answer even if the replay as recorded is off by more than 10 %");
  add_window(app, "--iterations", arguments->options.iterations,
             "Report only iterations A to B - 1, counted from 0");
  app.add_flag("--missing-collectives", arguments->options.missing_ranks,
               "Go on where a rank lacks a collective that others have");
  app.add_option("--timeline FILE", arguments->timeline,
                 "Write the replayed ranks and streams, launches and the critical path as a Chrome "
                 "trace, for ui.perfetto.dev");
  app.add_option(
      "--chakra PREFIX", arguments->chakra,
      "Write PREFIX.N.et, Chakra traces for network simulators; N counts the traces from 0");
  app.add_option("--graph GRAPH", arguments->graphs,
                 "Execution graph of each trace: the sizes of its collectives, where the trace "
                 "did not record them");
  app.add_option("--top N", arguments->top, "Rows of the long tables")
      .check(at_least(0))
      .capture_default_str();
  add_reading(app, arguments->reading);
  add_anonymize(app, arguments->anonymizer);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_replay(*arguments); }};
}

}  // namespace perfmodel::cli
