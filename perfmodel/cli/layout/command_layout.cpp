#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/progress_bar.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/interrupt_guard.hpp"
#include "cli/shared/open_team.hpp"
#include "layout/measured_steps.hpp"
#include "layout_arguments.hpp"
#include "layout_report.hpp"
#include "perfmodel/detail/layout_traces.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct LayoutSweepArguments {
  std::string axis, csv;
  std::vector<std::string> values;
};

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
  auto predictor = load_predictor(arguments.machine.gpu);
  if (!predictor) return Unexpected{predictor.error()};
  auto pricer = layout_pricer(*predictor, arguments.machine, arguments, &question->job, warn);
  if (!pricer) return Unexpected{pricer.error()};
  const auto gpu = predictor->gpu(arguments.machine.gpu);
  if (!gpu) return Unexpected{gpu.error()};
  auto loaded = std::make_unique<LoadedLayout>(
      LoadedLayout{std::move(*predictor), std::move(*pricer), std::move(*question), {}});
  LayoutReport& report = loaded->report;
  report.job = &loaded->question.job;
  report.gpu = gpu->name;
  report.gpu_title = gpu->title;
  report.topology =
      arguments.machine.topology.empty() ? topology_for(*gpu).name : arguments.machine.topology;
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

// Takes Ctrl-C while it lives, and draws a bar.
struct WatchedRun {
  explicit WatchedRun(std::string name) : title(std::move(name)) {}
  LayoutRunHooks hooks() {
    return {.warn = warn,
            .is_stopped = InterruptGuard::interrupted,
            .progress = [this](std::size_t done, std::size_t all) {
              if (!bar) bar.emplace(title, all);
              bar->update(done);
            }};
  }

  const InterruptGuard guard;
  const std::string title;
  std::optional<ProgressBar> bar;
};

// --- commands ----------------------------------------------------------------------------------

Result<LayoutRanking> search_layouts(const LoadedLayout& loaded,
                                     const LayoutCommandArguments& arguments,
                                     sweep::Team* team = nullptr) {
  if (!arguments.layout.world) {
    return impossible_layout_question("expected --world (GPUs), found none");
  }
  const auto space = layout_space(arguments.layout);
  if (!space) return Unexpected{space.error()};
  WatchedRun run("search layouts");
  return perfmodel::search_layouts(loaded.pricer, *loaded.report.job, *arguments.layout.world,
                                   *space, arguments.top, run.hooks(), team);
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

bool is_given(const LayoutArguments& arguments, const LayoutField& field) {
  const auto in_list = [&](auto list) {
    if constexpr (std::is_same_v<decltype(list), std::monostate>) {
      return false;
    } else {
      return !(arguments.lists.*list).empty();
    }
  };
  const auto in_member = [&](auto member) {
    const auto& value = arguments.*member;
    if constexpr (std::is_same_v<decltype(value), const std::string&>) {
      return !value.empty();
    } else if constexpr (std::is_same_v<decltype(value), const double&>) {
      return value != 0;
    } else {
      return value.has_value();
    }
  };
  return std::visit(in_list, field.list) || std::visit(in_member, field.member);
}

// Flags that the rows' columns stand for would be ignored.
Result<void> refuse_row_flags(const LayoutArguments& arguments) {
  const auto refuse = [](const std::string& flag) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected models and layouts in the table's columns, found {} beside "
                            "--table",
                            flag));
  };
  for (const LayoutField& field : layout_fields()) {
    if (field.is_of_row && is_given(arguments, field)) return refuse(flag_of(field.name));
  }
  if (arguments.searched_stages) return refuse("--stages searched");
  if (!arguments.measured_layout.empty()) return refuse("--measured-layout");
  if (arguments.json) return refuse("--json");
  return {};
}

Result<void> price_table(const LayoutCommandArguments& arguments) {
  if (!arguments.layout.model.empty()) {
    return impossible_layout_question("expected a MODEL or --table, found both");
  }
  const auto predictor = load_predictor(arguments.layout.machine.gpu);
  if (!predictor) return Unexpected{predictor.error()};
  if (auto good = refuse_row_flags(arguments.layout); !good) return good;
  WatchedRun run("price layouts");
  const auto text = price_layout_rows(*predictor, arguments.layout, arguments.table, run.hooks());
  run.bar.reset();
  return text ? print_or_write(*text, arguments.output) : Unexpected{text.error()};
}

Result<void> eval_layout(const LayoutCommandArguments& arguments) {
  if (!arguments.table.empty()) return price_table(arguments);
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
  const auto predictor =
      load_predictor(arguments.sweep.axis == "gpu" ? "" : arguments.layout.machine.gpu);
  if (!predictor) return Unexpected{predictor.error()};
  const LayoutSweepArguments& sweep = arguments.sweep;
  WatchedRun run("layouts");
  const auto rows =
      sweep_layouts(*predictor, arguments.layout, sweep.axis, sweep.values, run.hooks());
  run.bar.reset();
  if (!rows) return Unexpected{rows.error()};
  if (!sweep.csv.empty()) {
    const auto written = write_file(sweep.csv, layout_sweep_csv(sweep.axis, *rows));
    if (!written) return written;
  }
  if (arguments.layout.json) return print_document(layout_sweep_json(sweep.axis, *rows));
  return print_report(layout_sweep_text(sweep.axis, *rows, bold_allowed()));
}

Result<void> calibrate_layout(const LayoutCommandArguments& arguments) {
  const LayoutArguments& layout = arguments.layout;
  if (layout.measured.empty()) {
    return impossible_layout_question("expected --measured (steps of this machine), found none");
  }
  return calibrate_machine(layout, arguments.output);
}

void add_sweep_options(CommandParser app, LayoutSweepArguments& arguments) {
  app.add_option("--axis", arguments.axis, "What changes")
      .required()
      .check(one_of({"world", "gpu", "global-batch", "sequence", "topology", "host"}))
      .type_name("NAME");
  app.add_option("--values", arguments.values, "Values of the axis")
      .required()
      .delimiter(',')
      .type_name("V,V,...");
  app.add_option("--csv", arguments.csv, "Write the rows as CSV").type_name("FILE");
}

// The callback of a parent runs too: only the innermost command that was named counts.
using LayoutAction = Result<void> (*)(const LayoutCommandArguments&);

}  // namespace

Command layout_command(CommandParser parent) {
  auto arguments = std::make_shared<LayoutCommandArguments>();
  auto action = std::make_shared<LayoutAction>(rank_layout);
  const CommandParser app = parent.add_subcommand(
      "layout",
      "Parallel training of a transformer: which layout, how fast, does it fit, what limits it");
  const auto add = [&](const char* name, const char* help, LayoutAction run) {
    const CommandParser command = app.add_subcommand(name, help);
    add_layout_options(command, arguments->layout);
    command.callback([action, run] { *action = run; });
    return command;
  };
  CommandParser ranked =
      add("rank", "Search for the fastest layouts that fit (the default)", rank_layout);
  const CommandParser judged =
      add("eval", "Price one layout, or every row of a table", eval_layout);
  CommandParser compared =
      add("compare", "Two layouts term by term, or one beside the best", compare_layouts);
  CommandParser exported =
      add("export", "Write one layout's step as Chakra traces and as a timeline", export_layout);
  const CommandParser swept =
      add("sweep", "The best layout over values of one input", sweep_layout);
  const CommandParser calibrated = add(
      "calibrate", "Learn a machine from measured steps and write it to a file", calibrate_layout);
  calibrated
      .add_option("-o,--output", arguments->output,
                  "Write the machine here; --measured takes it again (only a report)")
      .type_name("FILE");
  ranked.add_option("--top", arguments->top, "Layouts to report (10)")
      .check(in_range(std::size_t{1}, std::size_t{1000}))
      .type_name("K");
  judged.option("--gpu").required(false);
  judged.add_option("--table", arguments->table, "Rows to price (CSV), instead of MODEL")
      .type_name("FILE");
  judged.add_option("-o,--output", arguments->output, "Where the table goes (standard output)")
      .type_name("FILE");
  compared
      .add_option("--layout", arguments->layouts,
                  "tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full; once or twice")
      .required()
      .expected(1, 2)
      .type_name("PARTS");
  exported
      .add_option("-o,--output", arguments->output,
                  "Write PREFIX.N.et, Chakra traces for network simulators; N counts stages")
      .required()
      .type_name("PREFIX");
  exported.add_flag("--every-rank", arguments->every_rank, "A trace of every rank; N is the rank");
  exported
      .add_option("--timeline", arguments->timeline,
                  "Write a rank of each stage as a Chrome trace, for ui.perfetto.dev")
      .type_name("FILE");
  add_sweep_options(swept, arguments->sweep);
  swept.option("--gpu").required(false);
  app.require_subcommand(1);
  return {app, [arguments, action] { return (*action)(*arguments); }};
}

}  // namespace perfmodel::cli
