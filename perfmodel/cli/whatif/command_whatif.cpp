#include <algorithm>
#include <memory>

#include "base/progress_bar.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/measured_step_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "cli/shared/write_asked.hpp"
#include "layout/training_run.hpp"
#include "rewrites/rewrite_options.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "what_if_report.hpp"
#include "whatif/target_inputs.hpp"
#include "whatif/what_if_plot.hpp"
#include "whatif/what_if_results.hpp"

namespace perfmodel::cli {
namespace {

constexpr const char* kSame = "same";  // a value that leaves the graph as it is

using Axis = sweep::RewriteAxis;

struct WhatIfArguments {
  std::string graph, csv, plot, usd_per_gpu_hour;
  TargetQuestion target;
  std::vector<Axis> axes;  // in the order of the command line
  std::size_t threads = 0;
  ReadOptions reading;
  bool json = false, max_batch = false;
};

Result<void> answer(const ExecutionGraph& graph, const WhatIfArguments& arguments,
                    WhatIfReport& report) {
  ProgressBar bar("what if", report.variants.size());
  const auto answered =
      answer_variants(graph,
                      {.largest_batch = arguments.max_batch,
                       .threads = arguments.threads,
                       .progress = [&bar](std::size_t done) { bar.update(done); }},
                      report);
  bar.finish();
  return answered;
}

Result<void> run_whatif(const WhatIfArguments& arguments) {
  WhatIfReport report{.graph_file = file_name(arguments.graph),
                      .axes = arguments.axes,
                      .models = arguments.target.models,
                      .at_largest_batch = arguments.max_batch};
  PERFMODEL_TRY_TO(cross_axes(report));
  PERFMODEL_TRY(models, choose_kernel_models(report.models));
  TargetInputs inputs{.chosen = std::move(*models)};
  PERFMODEL_TRY(programs, read_programs({arguments.graph}, arguments.reading));
  inputs.program = std::move(programs->front());
  PERFMODEL_TRY_TO(load_targets(arguments.target, inputs));
  report.targets = inputs.targets();
  report.warnings = inputs.warnings;
  if (!arguments.usd_per_gpu_hour.empty()) {
    for (const WhatIfTarget& target : report.targets) {
      PERFMODEL_TRY(price, gpu_price(arguments.usd_per_gpu_hour, target.gpu.name));
      report.usd_per_gpu_hour.push_back(*price);
    }
  }
  PERFMODEL_TRY_TO(answer(inputs.program.graph, arguments, report));
  PERFMODEL_TRY_TO(inputs.chosen.check());
  PERFMODEL_TRY_TO(write_asked(arguments.plot, [&] { return what_if_svg(report); }));
  PERFMODEL_TRY_TO(write_asked(arguments.csv, [&] { return what_if_csv(report); }));
  if (arguments.json) return print_document(schemas::kWhatIf, what_if_json(report));
  return print_report(what_if_text(report, bold_allowed()));
}

Axis::Value axis_value(const RewriteOption& option, const std::string& flag, std::string text) {
  if (text == kSame) return {.text = std::move(text)};
  auto rewrite = named_rewrite(option, option.value.empty() ? "" : text);
  if (!rewrite) bad_usage(flag, to_string(rewrite.error()));
  return {.text = std::move(text), .rewrite = std::move(*rewrite)};
}

void add_axis(const RewriteOption& option, const std::vector<std::string>& texts,
              std::vector<Axis>& axes) {
  Axis axis{.name = option.flag.substr(2)};
  for (const std::string& text : texts)
    axis.values.push_back(axis_value(option, option.flag, text));
  axes.push_back(std::move(axis));
}

// Each value of the axis with each text of the detail.
void add_detail(const RewriteOption& option, const RewriteOption::Detail& detail,
                const std::vector<std::string>& texts, std::vector<Axis>& axes) {
  const auto axis = std::ranges::find(axes, option.flag.substr(2), &Axis::name);
  if (axis == axes.end()) bad_usage(detail.flag, "expected behind " + option.flag);
  std::vector<Axis::Value> values;
  for (const Axis::Value& value : axis->values) {
    if (!value.rewrite) {
      values.push_back(value);
      continue;
    }
    for (const std::string& text : texts) {
      values.push_back(axis_value(option, detail.flag, with_detail(value.text, detail, text)));
    }
  }
  axis->values = std::move(values);
}

// Flags of all rewrites, each with a list of values to cross.
void add_axes(CommandParser app, std::vector<Axis>& axes) {
  using Texts = std::vector<std::string>;
  for (const RewriteOption& option : rewrite_options()) {
    if (option.value.empty()) {
      app.add_flag_callback(
             option.flag,
             [&axes, &option] {
               add_axis(option, {kSame, "on"}, axes);
             },
             option.help + "; with and without")
          .trigger_on_parse();
      continue;
    }
    app.add_option_function<Texts>(
           option.flag, [&axes, &option](const Texts& texts) { add_axis(option, texts, axes); },
           option.help)
        .delimiter(',')
        .trigger_on_parse()
        .type_name(option.value + ",...");
    for (const RewriteOption::Detail& detail : option.details) {
      app.add_option_function<Texts>(
             detail.flag,
             [&axes, &option, &detail](const Texts& texts) {
               add_detail(option, detail, texts, axes);
             },
             detail.help)
          .delimiter(',')
          .trigger_on_parse()
          .type_name(detail.value + ",...");
    }
  }
}

void check_whatif_flags(const WhatIfArguments& arguments) {
  if (arguments.target.gpu.empty() && arguments.target.gpus.empty()) {
    missing_argument("--gpu or --gpus");
  }
  for (std::size_t i = 0; i < arguments.axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (arguments.axes[i].name == arguments.axes[j].name) {
        bad_usage("--" + arguments.axes[i].name,
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
  app.add_argument("graph GRAPH", arguments->graph, "Execution graph to start from");
  app.add_option("--gpu NAME", arguments->target.gpu,
                 "GPU of the baseline: a known name, or a GPU file");
  app.add_option("--gpus NAME,...", arguments->target.gpus,
                 "More GPUs to cross with (the first is the baseline's "
                 "without --gpu)");
  add_axes(app, arguments->axes);
  app.add_flag("--max-batch", arguments->max_batch,
               "Predict every variant at the largest batch that fits into its GPU");
  add_overheads_option(app, arguments->target.overheads, kOverheadsHelp);
  add_measured_step(app, arguments->target.measured,
                    add_scale_host(app, arguments->target.host_scale));
  app.add_option("--world N", arguments->target.world,
                 "Number of ranks, for collectives whose group size is not recorded")
      .check(at_least(1));
  app.add_option("--topology NAME", arguments->target.topology,
                 "How the GPUs are connected (default: the usual node of each GPU)");
  app.add_option("--usd-per-gpu-hour X|FILE", arguments->usd_per_gpu_hour,
                 "What a GPU costs, or a JSON file of prices by GPU: money and energy of a million "
                 "samples, cheapest first");
  add_models_option(app, arguments->target.models);
  app.add_option("--threads N", arguments->threads, "Threads (default: all that the machine has)")
      .check(at_least(1));
  app.add_option("--csv FILE", arguments->csv, "Write the rows as CSV");
  app.add_option("--plot FILE", arguments->plot, "Write throughput as SVG");
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
