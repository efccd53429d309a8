#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "base/progress_bar.hpp"
#include "cli/predict/measured_step_option.hpp"
#include "cli/rewrite/rewrite_options.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "perfmodel/what_if.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "trace/moved_kernel_times.hpp"
#include "what_if_report.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kMostVariants = 1'000'000;
constexpr const char* kSame = "same";  // a value that leaves the graph as it is

struct Axis {
  const RewriteOption* option = nullptr;
  std::vector<std::string> values;
};

struct WhatIfArguments {
  std::string graph, gpu, overheads, models = "learned", topology, csv, plot;
  std::vector<std::string> gpus;
  std::vector<Axis> axes;  // in the order of the command line
  std::int64_t world = 0;
  double host_scale = 1;
  TimedStep measured;
  std::size_t threads = 0;
  ReadOptions reading;
  bool json = false, max_batch = false;
};

// What the predictions point to.
struct Loaded {
  ChosenKernelModels chosen;
  RecordedProgram input;
  std::vector<ChosenOverheads> tables;
  std::vector<std::unique_ptr<KernelTimes>> kernel_times;  // of kernels that have no model
  std::vector<std::unique_ptr<KernelModel>> collectives;
  std::vector<KernelModels> models;
};

// "batch 1024, optimizer fused"; the graph as it is has no rewrites.
Result<Variant> make_variant(const std::vector<Axis>& axes,
                             const std::vector<std::string>& values) {
  Variant variant;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (values[i].empty()) continue;
    auto rewrite = named_rewrite(*axes[i].option, axes[i].option->value.empty() ? "" : values[i]);
    if (!rewrite) return Unexpected{rewrite.error()};
    if (!variant.name.empty()) variant.name += ", ";
    variant.name += rewrite->name.substr(2);
    variant.rewrites.push_back(std::move(*rewrite));
  }
  if (variant.name.empty()) variant.name = "as it is";
  return variant;
}

// Every combination, the last axis fastest, behind the graph as it is.
Result<void> cross(const std::vector<Axis>& axes, WhatIfReport& report) {
  std::size_t count = 1;
  for (const Axis& axis : axes) {
    count *= axis.values.size();
    if (count > kMostVariants) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected at most {} variants, found more", kMostVariants));
    }
  }
  std::vector<std::vector<std::string>> all = {std::vector<std::string>(axes.size())};
  for (std::size_t i = 0; i < count && !axes.empty(); ++i) {
    std::vector<std::string> values(axes.size());
    std::size_t rest = i;
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      const auto& choices = axes[axis].values;
      const std::string& value = choices[rest % choices.size()];
      values[axis] = value == kSame ? "" : value;
      rest /= choices.size();
    }
    if (values != all.front()) all.push_back(std::move(values));
  }
  for (auto& values : all) {
    auto variant = make_variant(axes, values);
    if (!variant) return Unexpected{variant.error()};
    report.variants.push_back(std::move(*variant));
    report.values.push_back(std::move(values));
  }
  for (const Axis& axis : axes) {
    report.axes.push_back({axis.option->flag.substr(2), axis.values});
    for (std::string& value : report.axes.back().values) {
      if (value == kSame) value.clear();
    }
  }
  return {};
}

void warn(WhatIfReport& report, const std::string& warning) {
  if (!warning.empty() && std::ranges::find(report.warnings, warning) == report.warnings.end()) {
    report.warnings.push_back(warning);
  }
}

// A host-bound step is as fast as its host: then rows compare machines, not GPUs.
void warn_of_hosts(const std::vector<ChosenOverheads>& tables, WhatIfReport& report) {
  std::vector<std::string> files;
  for (const ChosenOverheads& table : tables) {
    if (std::ranges::find(files, table.file) == files.end()) files.push_back(table.file);
  }
  if (files.size() < 2) return;
  warn(report,
       fmt::format("overheads of different machines ({}): where the host bounds a step, rows "
                   "compare hosts as well as GPUs; --overheads takes one table for all",
                   fmt::join(files, ", ")));
}

Result<void> use_own_kernel_times(Loaded& loaded, WhatIfReport& report) {
  if (!loaded.input.trace) return {};
  for (WhatIfTarget& target : report.targets) {
    auto moved = kernel_times_on(loaded.input.graph, *loaded.input.trace, target.gpu);
    if (!moved) return Unexpected{moved.error()};
    if (moved->sentence) warn(report, *moved->sentence);
    loaded.kernel_times.push_back(std::make_unique<KernelTimes>(std::move(moved->times)));
    target.options.kernel_times = loaded.kernel_times.back().get();
    target.options.use = moved->use;
  }
  return {};
}

Result<void> load_targets(const WhatIfArguments& arguments, Loaded& loaded, WhatIfReport& report) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  std::vector<std::string> names = arguments.gpus;
  if (!arguments.gpu.empty()) names.insert(names.begin(), arguments.gpu);
  OverheadTables tables(*data);
  std::optional<ChosenOverheads> own;  // of a trace: the same for every GPU
  loaded.models.reserve(names.size());
  std::vector<std::string> first;  // of the warnings
  for (const std::string& name : names) {
    auto gpu = find_gpu(name, *data / "gpus");
    if (!gpu) return Unexpected{gpu.error()};
    const auto known = [&](const WhatIfTarget& target) { return target.gpu.name == gpu->name; };
    if (std::ranges::any_of(report.targets, known)) continue;
    for (std::string& sentence : stand_ins(*gpu)) first.push_back(std::move(sentence));
    if (!own && loaded.input.trace && arguments.overheads.empty()) {
      auto found = tables.own(*loaded.input.trace, loaded.input.graph);
      if (!found) return Unexpected{found.error()};
      own = std::move(*found);
      for (const std::string& warning : own->table->warnings) warn(report, warning);
    }
    auto table = own ? Result<ChosenOverheads>(*own) : tables.choose(arguments.overheads, *gpu);
    if (!table) return Unexpected{table.error()};
    warn(report, table->warning);
    loaded.tables.push_back(std::move(*table));
    loaded.models.push_back(loaded.chosen.models);
    if (!arguments.topology.empty()) {
      auto topology = TopologyCatalog::builtin().find(arguments.topology);
      if (!topology) return Unexpected{topology.error()};
      for (const std::string& sentence : stand_ins(*topology)) warn(report, sentence);
      loaded.collectives.push_back(make_collective_model(*topology, {}));
      loaded.models.back().set(KernelFamily::kCollective, loaded.collectives.back().get());
    }
    report.targets.push_back({.gpu = std::move(*gpu),
                              .overheads = loaded.tables.back().table.get(),
                              .options = {.recorded_waits = arguments.topology.empty(),
                                          .models = &loaded.models.back(),
                                          .world_size = arguments.world,
                                          .host_scale = arguments.host_scale}});
  }
  warn_of_hosts(loaded.tables, report);
  report.warnings.insert(report.warnings.begin(), first.begin(), first.end());
  return {};
}

Result<void> answer(const ExecutionGraph& graph, const WhatIfArguments& arguments,
                    WhatIfReport& report) {
  ProgressBar bar("what if", report.variants.size());
  report.answers = what_if(graph, report.variants, report.targets,
                           {.largest_batch = arguments.max_batch,
                            .threads = arguments.threads,
                            .progress = [&bar](std::size_t done) { bar.update(done); }});
  bar.finish();
  // Without a baseline there is nothing to compare with.
  if (report.baseline().error) return Unexpected{*report.baseline().error};
  const bool nothing = std::ranges::all_of(report.answers, [&](const WhatIfAnswer& answer) {
    return answer.variant == 0 || answer.error;
  });
  if (report.variants.size() > 1 && nothing) {
    return Unexpected{*report.answers[report.targets.size()].error};
  }
  return {};
}

Result<void> run_whatif(const WhatIfArguments& arguments) {
  WhatIfReport report{.graph_file = file_name(arguments.graph),
                      .models = arguments.models,
                      .at_largest_batch = arguments.max_batch};
  if (auto crossed = cross(arguments.axes, report); !crossed) return crossed;
  auto models = choose_kernel_models(arguments.models);
  if (!models) return Unexpected{models.error()};
  Loaded loaded{.chosen = std::move(*models)};
  warn(report, loaded.chosen.warning);
  auto inputs = read_programs({arguments.graph}, arguments.reading);
  if (!inputs) return Unexpected{inputs.error()};
  loaded.input = std::move(inputs->front());
  const ExecutionGraph& graph = loaded.input.graph;
  if (auto found = load_targets(arguments, loaded, report); !found) return found;
  if (auto found = use_own_kernel_times(loaded, report); !found) return found;
  if (arguments.measured.us) {
    const auto scales = match_measured(arguments.measured, loaded.input, report.targets.front());
    if (!scales) return Unexpected{scales.error()};
    for (WhatIfTarget& target : report.targets) {
      target.options.host_scale = scales->host;
      target.options.device_scale = scales->device;
    }
    warn(report, measured_sentence(arguments.measured, *scales));
  }
  for (const std::string& warning : graph.warnings) warn(report, warning);
  if (auto answered = answer(graph, arguments, report); !answered) return answered;
  for (const WhatIfAnswer& one : report.answers) {
    for (const std::string& warning : one.rewrite_warnings) warn(report, warning);
  }
  if (auto readable = loaded.chosen.check(); !readable) return readable;
  if (!arguments.plot.empty()) {
    auto svg = what_if_svg(report);
    if (!svg) return Unexpected{svg.error()};
    if (auto written = write_file(arguments.plot, *svg); !written) return written;
  }
  if (!arguments.csv.empty()) {
    if (auto written = write_file(arguments.csv, what_if_csv(report)); !written) return written;
  }
  if (arguments.json) return print_document(what_if_json(report));
  return print_report(what_if_text(report, bold_allowed()));
}

// What more is said of an axis: all its values with each of these.
void add_details(CommandParser app, const RewriteOption& option, std::vector<Axis>& axes) {
  for (const RewriteOption::Detail& detail : option.details) {
    app.add_option_function<std::vector<std::string>>(
           detail.flag,
           [&axes, &option, &detail](const std::vector<std::string>& texts) {
             const auto axis = std::ranges::find(axes, &option, &Axis::option);
             if (axis == axes.end()) {
               bad_usage(detail.flag, "expected behind " + option.flag);
             }
             std::vector<std::string> values;
             for (const std::string& value : axis->values) {
               if (value == kSame) {
                 values.push_back(value);
                 continue;
               }
               for (const std::string& text : texts) {
                 values.push_back(with_detail(value, detail, text));
                 if (auto parsed = option.parse(values.back()); !parsed) {
                   bad_usage(detail.flag, to_string(parsed.error()));
                 }
               }
             }
             axis->values = std::move(values);
           },
           detail.help)
        .delimiter(',')
        .trigger_on_parse()
        .type_name(detail.value + ",...");
  }
}

// Flags of all rewrites, each with a list of values to cross.
void add_axes(CommandParser app, std::vector<Axis>& axes) {
  for (const RewriteOption& option : rewrite_options()) {
    if (option.value.empty()) {
      app.add_flag_callback(
             option.flag,
             [&axes, &option] {
               axes.push_back({&option, {kSame, "on"}});
             },
             option.help + "; with and without")
          .trigger_on_parse();
      continue;
    }
    app.add_option_function<std::vector<std::string>>(
           option.flag,
           [&axes, &option](const std::vector<std::string>& values) {
             for (const std::string& value : values) {
               if (value == kSame) continue;
               if (auto parsed = option.parse(value); !parsed) {
                 bad_usage(option.flag, to_string(parsed.error()));
               }
             }
             axes.push_back({&option, values});
           },
           option.help)
        .delimiter(',')
        .trigger_on_parse()
        .type_name(option.value + ",...");
    add_details(app, option, axes);
  }
}

void check_whatif_flags(const WhatIfArguments& arguments) {
  if (arguments.gpu.empty() && arguments.gpus.empty()) {
    missing_argument("--gpu or --gpus");
  }
  for (std::size_t i = 0; i < arguments.axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (arguments.axes[i].option == arguments.axes[j].option) {
        bad_usage(arguments.axes[i].option->flag,
                  "expected once, with all values in one list, found twice");
      }
    }
  }
}

}  // namespace

Command whatif_command(CommandParser parent) {
  auto arguments = std::make_shared<WhatIfArguments>();
  const CommandParser app = parent.add_subcommand(
      "whatif", "Cross rewrites of a graph with GPUs: throughput, speed-up, what bounds each");
  app.add_option("graph", arguments->graph, "Execution graph to start from")
      .required()
      .type_name("GRAPH");
  app.add_option("--gpu", arguments->gpu, "GPU of the baseline: a known name, or a GPU file")
      .type_name("NAME");
  app.add_option("--gpus", arguments->gpus,
                 "More GPUs to cross with (the first is the baseline's "
                 "without --gpu)")
      .delimiter(',')
      .type_name("NAME,...");
  add_axes(app, arguments->axes);
  app.add_flag("--max-batch", arguments->max_batch,
               "Predict every variant at the largest batch that fits into its GPU");
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  add_measured_step(app, arguments->measured, add_scale_host(app, arguments->host_scale));
  app.add_option("--world", arguments->world,
                 "Number of ranks, for collectives whose group size is not recorded")
      .check(at_least(1))
      .type_name("N");
  app.add_option("--topology", arguments->topology,
                 "How the GPUs are connected (default: the usual node of each GPU)")
      .type_name("NAME");
  add_models_option(app, arguments->models);
  app.add_option("--threads", arguments->threads, "Threads (default: all that the machine has)")
      .check(at_least(1))
      .type_name("N");
  app.add_option("--csv", arguments->csv, "Write the rows as CSV").type_name("FILE");
  app.add_option("--plot", arguments->plot, "Write throughput as SVG").type_name("FILE");
  add_reading(app, arguments->reading);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(
      "Every rewrite flag takes a list; all combinations are predicted, behind the graph as it is\n"
      "(the baseline). \"same\" in a list leaves that property alone. Rewrites are applied in the\n"
      "order of the flags.");
  app.callback([arguments] { check_whatif_flags(*arguments); });
  return {app, [arguments] { return run_whatif(*arguments); }};
}

}  // namespace perfmodel::cli
