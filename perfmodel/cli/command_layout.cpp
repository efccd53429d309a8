#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/progress_bar.hpp"
#include "command.hpp"
#include "interrupt_guard.hpp"
#include "layout_arguments.hpp"
#include "layout_measured.hpp"
#include "layout_report.hpp"
#include "layout_sweep.hpp"
#include "layout_table.hpp"
#include "layout_team.hpp"
#include "open_team.hpp"
#include "perfmodel/detail/layout_traces.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct LayoutCommandArguments {
  LayoutArguments layout;
  std::size_t top = 10;
  std::vector<std::string> layouts;  // of `compare`
  std::string table, output;
  LayoutSweepArguments sweep;
  std::string timeline;     // of `export`
  bool every_rank = false;  // the same
};

// What all commands have loaded.
struct LoadedLayout {
  Predictor predictor;
  LayoutPricer pricer;
  LayoutQuestion question;
  LayoutReport report;  // without layouts; its job is that of `question`
};

Unexpected impossible_layout_question(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

Result<Predictor> load_predictor(const std::string& gpu) {
  PredictorConfig config;
  if (!gpu.empty()) config.gpus = {gpu};
  return Predictor::load(config);
}

Result<std::unique_ptr<LoadedLayout>> load_layout(const LayoutArguments& arguments) {
  auto question = layout_question(arguments);
  if (!question) return Unexpected{question.error()};
  auto predictor = load_predictor(arguments.gpu);
  if (!predictor) return Unexpected{predictor.error()};
  auto pricer = LayoutPricer::make(*predictor, {.gpu = arguments.gpu,
                                                .topology = arguments.topology,
                                                .host_scale = arguments.host_scale,
                                                .collectives = arguments.collectives});
  if (!pricer) return Unexpected{pricer.error()};
  const auto gpu = predictor->gpu(arguments.gpu);
  if (!gpu) return Unexpected{gpu.error()};
  if (!arguments.measured.empty()) {
    pricer = measured_pricer(*pricer, arguments, &question->job, *gpu);
    if (!pricer) return Unexpected{pricer.error()};
  }
  auto loaded = std::make_unique<LoadedLayout>(
      LoadedLayout{std::move(*predictor), std::move(*pricer), std::move(*question), {}});
  LayoutReport& report = loaded->report;
  report.job = &loaded->question.job;
  report.gpu = gpu->name;
  report.gpu_title = gpu->title;
  report.topology = arguments.topology.empty() ? topology_for(*gpu).name : arguments.topology;
  report.warnings = loaded->question.notes;
  report.measured = loaded->pricer.fit();
  if (arguments.software.empty()) {
    report.warnings.push_back(fmt::format(
        "nobody says whose program runs the job (--software): the costs of {} count, which was "
        "fitted to no run; measured runs of FSDP and Megatron-DeepSpeed took 15 to 28 % longer",
        loaded->question.job.software));
  }
  return loaded;
}

void take_warnings(LayoutReport& report) {
  for (const RankedLayout& one : report.layouts) {
    for (const std::string& warning : one.prediction.warnings) {
      if (std::ranges::find(report.warnings, warning) == report.warnings.end()) {
        report.warnings.push_back(warning);
      }
    }
  }
}

// What of the first layout's step nobody has measured.
void add_open_effects(LoadedLayout& loaded) {
  LayoutReport& report = loaded.report;
  constexpr std::size_t kMostEffects = 5;
  auto open = loaded.pricer.worth_measuring(*report.job, report.layouts.front().layout);
  if (!open) return;  // its layout was priced: the same cannot fail
  if (open->size() > kMostEffects) open->resize(kMostEffects);
  report.open = std::move(*open);
}

// --- commands ----------------------------------------------------------------------------------

Result<LayoutRanking> search_layouts(const LoadedLayout& loaded,
                                     const LayoutCommandArguments& arguments,
                                     sweep::Team* team = nullptr) {
  if (!arguments.layout.world) {
    return impossible_layout_question("expected --world (GPUs), found none");
  }
  const auto space = layout_space(arguments.layout);
  if (!space) return Unexpected{space.error()};
  const InterruptGuard guard;
  std::stop_source stop;
  std::optional<ProgressBar> bar;
  LayoutSearchOptions options{.keep = arguments.top, .cancel = stop.get_token()};
  options.progress = [&](std::int64_t done, std::int64_t all) {
    if (InterruptGuard::interrupted()) stop.request_stop();
    if (!bar) bar.emplace("search layouts", static_cast<std::size_t>(all));
    bar->update(static_cast<std::size_t>(done));
  };
  const LayoutJob& job = *loaded.report.job;
  const std::int64_t world = *arguments.layout.world;
  auto ranking = team ? rank_layouts_together(loaded.pricer, job, world, *space, options, *team)
                      : rank_layouts(loaded.pricer, job, world, *space, options);
  if (!ranking || (team && team->rank() > 0)) return ranking;
  if (ranking->best.empty()) {
    if (!ranking->complete) return impossible_layout_question("stopped before a layout was found");
    return impossible_layout_question(nothing_fits(*ranking, *arguments.layout.world));
  }
  return ranking;
}

Unexpected quiet_failure_of_team() {
  return Unexpected{Error{.code = ErrorCode::kCancelled, .message = {}}};
}

// Under mpirun all ranks read the same question; what is wrong with it is said by rank 0, while the
// team stands, whose end all ranks wait for.
Unexpected failure_of_team(const sweep::Team* team, const Error& error) {
  if (!team) return Unexpected{error};
  if (team->rank() == 0) complain(to_string(error));
  return quiet_failure_of_team();
}

Result<void> rank_layout(const LayoutCommandArguments& arguments) {
  const auto team = open_team();
  if (!team) return Unexpected{team.error()};
  auto loaded = load_layout(arguments.layout);
  const bool all_did = !*team || std::ranges::count((*team)->gather(loaded.has_value()), 0U) == 0;
  if (!loaded) return failure_of_team(team->get(), loaded.error());
  if (!all_did) return quiet_failure_of_team();
  LayoutReport& report = (*loaded)->report;
  const auto start = std::chrono::steady_clock::now();
  auto ranking = search_layouts(**loaded, arguments, team->get());
  if (!ranking) return failure_of_team(team->get(), ranking.error());
  if (*team && (*team)->rank() > 0) return {};
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.gpus = *arguments.layout.world;
  report.layouts = ranking->best;
  report.search = std::move(*ranking);
  take_warnings(report);
  add_open_effects(**loaded);
  if (!report.search->complete) {
    report.warnings.insert(report.warnings.begin(),
                           "the search was stopped: these are the best layouts so far");
  }
  if (arguments.layout.json) return print_document(layout_json(report));
  return print_report(layout_text(report, bold_allowed()));
}

Result<RankedLayout> priced_layout(const LoadedLayout& loaded, const ParallelLayout& layout) {
  auto made = loaded.pricer.predict(*loaded.report.job, layout);
  if (!made) return Unexpected{made.error()};
  return RankedLayout{layout, std::move(*made)};
}

// With the one layout that the flags name.
Result<std::unique_ptr<LoadedLayout>> load_priced_layout(const LayoutArguments& arguments) {
  auto loaded = load_layout(arguments);
  if (!loaded) return Unexpected{loaded.error()};
  const auto layout = named_layout(arguments);
  if (!layout) return Unexpected{layout.error()};
  auto one = priced_layout(**loaded, *layout);
  if (!one) return Unexpected{one.error()};
  LayoutReport& report = (*loaded)->report;
  report.gpus = layout->gpus();
  report.layouts = {std::move(*one)};
  take_warnings(report);
  add_open_effects(**loaded);
  return loaded;
}

Result<void> eval_layout(const LayoutCommandArguments& arguments) {
  if (!arguments.table.empty()) {
    if (!arguments.layout.model.empty()) {
      return impossible_layout_question("expected a MODEL or --table, found both");
    }
    const auto predictor = load_predictor(arguments.layout.gpu);
    if (!predictor) return Unexpected{predictor.error()};
    return price_layout_table(*predictor, arguments.layout, arguments.table, arguments.output);
  }
  const auto loaded = load_priced_layout(arguments.layout);
  if (!loaded) return Unexpected{loaded.error()};
  const LayoutReport& report = (*loaded)->report;
  if (arguments.layout.json) return print_document(layout_json(report));
  return print_report(layout_text(report, bold_allowed()));
}

Result<void> compare_layouts(const LayoutCommandArguments& arguments) {
  auto loaded = load_layout(arguments.layout);
  if (!loaded) return Unexpected{loaded.error()};
  LayoutReport& report = (*loaded)->report;
  for (const std::string& text : arguments.layouts) {
    const auto layout = parse_layout(text, arguments.layout.world);
    if (!layout) return Unexpected{layout.error()};
    auto one = priced_layout(**loaded, *layout);
    if (!one) return Unexpected{one.error()};
    report.gpus = layout->gpus();
    report.layouts.push_back(std::move(*one));
  }
  if (report.layouts.size() == 1) {
    const auto found = search_layouts(**loaded, arguments);
    if (!found) return Unexpected{found.error()};
    report.layouts.push_back(found->best.front());
  }
  take_warnings(report);
  if (report.layouts[0].layout.gpus() != report.layouts[1].layout.gpus()) {
    report.warnings.push_back(fmt::format("the layouts have {} and {} GPUs",
                                          report.layouts[0].layout.gpus(),
                                          report.layouts[1].layout.gpus()));
  }
  if (arguments.layout.json) return print_document(layout_json(report));
  return print_report(layout_comparison_text(report, bold_allowed()));
}

struct ExportedFiles {
  std::vector<std::string> names;
  std::size_t nodes = 0;
  double step_ms = 0;
};

Result<ExportedFiles> export_files(const LayoutTraces& traces,
                                   const LayoutCommandArguments& arguments) {
  ExportedFiles made{.step_ms = traces.step_us * 1e-3};
  if (auto done = write_chakra(traces.ranks, arguments.output, traces.groups); !done) {
    return Unexpected{done.error()};
  }
  for (std::size_t rank = 0; rank < traces.ranks.size(); ++rank) {
    made.names.push_back(fmt::format("{}.{}.et", arguments.output, rank));
    made.nodes += traces.ranks[rank].nodes.size();
  }
  if (!traces.groups.groups.empty()) {
    made.names.push_back(arguments.output + ".groups.json");
  }
  if (arguments.timeline.empty()) return made;
  if (auto done = write_timeline(traces.timeline, arguments.timeline); !done) {
    return Unexpected{done.error()};
  }
  made.names.push_back(arguments.timeline);
  return made;
}

Result<void> export_layout(const LayoutCommandArguments& arguments) {
  const auto loaded = load_priced_layout(arguments.layout);
  if (!loaded) return Unexpected{loaded.error()};
  const LayoutReport& report = (*loaded)->report;
  const ParallelLayout& layout = report.layouts.front().layout;
  const auto traces = (*loaded)->pricer.traces(*report.job, layout, arguments.every_rank);
  if (!traces) return Unexpected{traces.error()};
  const auto files = export_files(*traces, arguments);
  if (!files) return Unexpected{files.error()};
  if (arguments.layout.json) {
    Json json = layout_json(report);
    json["exported"] = {{"files", files->names},
                        {"ranks", traces->ranks.size()},
                        {"ranks_per_file", arguments.every_rank ? 1 : layout.dp * layout.tp},
                        {"nodes", files->nodes},
                        {"step_ms", six_digits(files->step_ms)}};
    return print_document(json);
  }
  return print_report(
      layout_text(report, bold_allowed()) +
      fmt::format("\n  {} nodes in {} (.0.et to .{}.et, {}); their step takes {:.2f} ms\n",
                  files->nodes, arguments.output, traces->ranks.size() - 1,
                  arguments.every_rank
                      ? std::string("one per rank")
                      : fmt::format("one per stage of {} ranks", layout.dp * layout.tp),
                  files->step_ms));
}

Result<void> sweep_layout(const LayoutCommandArguments& arguments) {
  const auto predictor = load_predictor(arguments.sweep.axis == "gpu" ? "" : arguments.layout.gpu);
  if (!predictor) return Unexpected{predictor.error()};
  return sweep_layouts(*predictor, arguments.layout, arguments.sweep);
}

Result<void> calibrate_layout(const LayoutCommandArguments& arguments) {
  const LayoutArguments& layout = arguments.layout;
  if (layout.measured.empty()) {
    return impossible_layout_question("expected --measured (steps of this machine), found none");
  }
  return calibrate_machine(layout, arguments.output);
}

// The callback of a parent runs too: only the innermost command that was named counts.
using LayoutAction = Result<void> (*)(const LayoutCommandArguments&);

}  // namespace

Command layout_command(CLI::App& parent) {
  auto arguments = std::make_shared<LayoutCommandArguments>();
  auto action = std::make_shared<LayoutAction>(rank_layout);
  CLI::App* app = parent.add_subcommand(
      "layout",
      "Parallel training of a transformer: which layout, how fast, does it fit, what limits it");
  const auto add = [&](const char* name, const char* help, LayoutAction run) {
    CLI::App* command = app->add_subcommand(name, help);
    add_layout_options(*command, arguments->layout);
    command->callback([action, run] { *action = run; });
    return command;
  };
  CLI::App* ranked =
      add("rank", "Search for the fastest layouts that fit (the default)", rank_layout);
  CLI::App* judged = add("eval", "Price one layout, or every row of a table", eval_layout);
  CLI::App* compared =
      add("compare", "Two layouts term by term, or one beside the best", compare_layouts);
  CLI::App* exported =
      add("export", "Write one layout's step as Chakra traces and as a timeline", export_layout);
  CLI::App* swept = add("sweep", "The best layout over values of one input", sweep_layout);
  CLI::App* calibrated = add(
      "calibrate", "Learn a machine from measured steps and write it to a file", calibrate_layout);
  calibrated
      ->add_option("-o,--output", arguments->output,
                   "Write the machine here; --measured takes it again (only a report)")
      ->type_name("FILE");
  ranked->add_option("--top", arguments->top, "Layouts to report (10)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
      ->type_name("K");
  judged->get_option("--gpu")->required(false);
  judged->add_option("--table", arguments->table, "Rows to price (CSV), instead of MODEL")
      ->type_name("FILE");
  judged->add_option("-o,--output", arguments->output, "Where the table goes (standard output)")
      ->type_name("FILE");
  compared
      ->add_option("--layout", arguments->layouts,
                   "tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full; once or twice")
      ->required()
      ->expected(1, 2)
      ->type_name("PARTS");
  exported
      ->add_option("-o,--output", arguments->output,
                   "Write PREFIX.N.et, Chakra traces for network simulators; N counts stages")
      ->required()
      ->type_name("PREFIX");
  exported->add_flag("--every-rank", arguments->every_rank, "A trace of every rank; N is the rank");
  exported
      ->add_option("--timeline", arguments->timeline,
                   "Write a rank of each stage as a Chrome trace, for ui.perfetto.dev")
      ->type_name("FILE");
  add_layout_sweep_options(*swept, arguments->sweep);
  swept->get_option("--gpu")->required(false);
  app->require_subcommand(1);
  return {app, [arguments, action] { return (*action)(*arguments); }};
}

}  // namespace perfmodel::cli
