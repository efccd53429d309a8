#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "base/plain_text.hpp"
#include "base/progress_bar.hpp"
#include "base/secrets.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "learned/model_errors.hpp"
#include "learned/train_results.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"
#include "train_arguments.hpp"

namespace perfmodel::cli {
namespace {

using training::KeptOut;
using training::LeftOut;
using training::ModelReport;

using Arguments = TrainArguments;

Result<std::vector<KernelTable>> read_tables(const Arguments& arguments,
                                             const std::vector<std::string>& paths) {
  PERFMODEL_TRY(data, find_data_folder());
  return read_kernel_tables(paths, {.gpu_folder = *data / "gpus",
                                    .gpu = arguments.gpu,
                                    .op = arguments.op,
                                    .dtype = arguments.dtype,
                                    .needs_time = true});
}

std::string kept_out_table(const ModelReport& model) {
  const KeptOut rows[] = {kept_out("random rows kept out", model.random),
                          kept_out("shapes kept out", model.grouped)};
  return field_table(std::span(rows), training::kKeptOutFields,
                     {"name", "rows", "mape", "geomean_ape", "bias", "coverage"})
      .text(bold_allowed());
}

std::string left_out_table(const ModelReport& model) {
  std::vector<LeftOut> rows = model.left_out;
  rows.insert(rows.end(), model.farther_left_out.begin(), model.farther_left_out.end());
  return field_table(rows, training::kLeftOutColumns,
                     {"gpu", "knowledge", "rows", "learned", "heuristic", "roofline",
                      "scaled_roofline", "best_ratio", "best_ratio_gpu", "mean_ratio_mape"})
      .text(bold_allowed());
}

/// Per level of knowledge all GPUs together, and the GPU whose rows the range holds worst.
std::string ranges_table(const ModelReport& model) {
  return field_table(model.ranges, training::kRangeCheckFields,
                     {"knowledge", "gpu", "rows", "in_range", "in_range_by_others"})
      .text(bold_allowed());
}

constexpr std::string_view kOneGpu =
    "measured on one GPU: errors on GPUs that were not measured cannot be told";

/// Rows that were read but are in no model.
std::string left_out_rows_text(const training::TrainReport& report) {
  std::string text;
  for (const auto& skipped : report.skipped) {
    text += fmt::format("{}: not fitted, {} ({})\n", plain_text(skipped.name),
                        shown_text(skipped.reason, kLongestMessage), counted(skipped.rows, "row"));
  }
  for (const auto& [family, rows] : report.other_families) {
    text += fmt::format("{}: not fitted, no model exists for this family ({})\n",
                        plain_text(family), counted(rows, "row"));
  }
  if (report.warm_rows > 0) {
    text += fmt::format("{} with operands in L2 on purpose: not fitted\n",
                        counted(report.warm_rows, "row"));
  }
  return text.empty() ? text : "\n" + text;
}

bool is_of_one_gpu(const training::TrainReport& report) {
  return std::ranges::any_of(report.models, [](const ModelReport& model) {
    return model.gpus == 1 && !model.random.measured_us.empty();
  });
}

/// One line per file.
std::string folder_text(const training::TrainReport& report, const std::string& folder) {
  TextTable table({"file", "rows", "kept out", "mean", "geometric mean", "in range"});
  for (const ModelReport& model : report.models) {
    const ErrorSummary s = model.random.errors();
    const bool is_judged = s.rows > 0;
    table.row({model.file, grouped(model.fitted_rows), grouped(s.rows),
               is_judged ? percent(s.mape) : "", is_judged ? percent(s.geomean_ape) : "",
               is_judged ? percent(model.random.coverage) : ""});
  }
  return fmt::format("\nErrors of random rows kept out:\n\n{}{}{}\nwritten to {}\n",
                     table.text(bold_allowed()), left_out_rows_text(report),
                     is_of_one_gpu(report) ? fmt::format("\n{}\n", kOneGpu) : "",
                     plain_text(folder));
}

std::string report_text(const training::TrainReport& report, const std::string& file) {
  std::string text;
  for (const ModelReport& model : report.models) {
    text += fmt::format("\n{}: {} rows fitted of {}\n", plain_text(model.name),
                        grouped(model.fitted_rows), grouped(model.rows));
    if (model.is_resumed) text += "taken over from a run that was cut off\n";
    if (!model.random.measured_us.empty()) text += "\n" + kept_out_table(model);
    if (!model.left_out.empty()) {
      text += "\nMean absolute errors of kernel times, rows above the launch floor:\n\n" +
              left_out_table(model);
    }
    if (!model.ranges.empty()) {
      text += "\nKept-out rows between low and high (goal 90 %), by what is known of the GPU:\n\n" +
              ranges_table(model);
    }
  }
  text += left_out_rows_text(report);
  if (is_of_one_gpu(report)) text += fmt::format("\n{}\n", kOneGpu);
  return text + fmt::format("\nwritten to {}\n", plain_text(file));
}

// The folder, which is made if need be. Why it cannot be made, writing a file says, too.
std::filesystem::path plot_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return folder;
}

Result<void> write_plots(const std::string& report_folder, const training::TrainReport& report) {
  const std::filesystem::path folder = plot_folder(report_folder);
  for (const ModelReport& model : report.models) {
    if (model.random.measured_us.empty() || model.grouped.measured_us.empty()) continue;
    PERFMODEL_TRY(svg, model_plots(model));
    PERFMODEL_TRY_TO(write_file(folder / (model.name + ".svg"), *svg));
  }
  return {};
}

Result<void> run_few_shot(const Arguments& arguments) {
  PERFMODEL_TRY(tables, read_tables(arguments, arguments.data));
  PERFMODEL_TRY(options, training::train_options(arguments));
  PERFMODEL_TRY(gpu, find_gpu(arguments.few_shot, *find_data_folder() / "gpus"));
  constexpr int kCounts[] = {3, 5, 10, 20, 50, 100, 200};
  constexpr int kSeeds = 3;
  PERFMODEL_TRY(curves, training::few_shot(*tables, *options, gpu->name, kCounts, kSeeds));
  TextTable table({"measured kernels", "random", "<lowest-highest", "k-means", "<lowest-highest"});
  for (std::size_t i = 0; i < curves->front().points.size(); ++i) {
    std::vector<std::string> cells{std::to_string(curves->front().points[i].points)};
    for (const auto& curve : *curves) {
      const auto& point = curve.points[i];
      cells.push_back(percent(point.mean));
      cells.push_back(fmt::format("{:.1f}-{:.1f}", 100 * point.low, 100 * point.high));
    }
    table.row(cells);
  }
  if (!arguments.report.empty()) {
    PERFMODEL_TRY(svg, training::few_shot_plot(gpu->name, *curves));
    PERFMODEL_TRY_TO(
        write_file(plot_folder(arguments.report) / ("few-shot-" + gpu->name + ".svg"), *svg));
  }
  if (!arguments.json) {
    return print_report(fmt::format(
        "\nMean absolute error of the rows that were not measured, {} as a new GPU:\n\n{}",
        plain_text(gpu->name), table.text(bold_allowed())));
  }
  return print_document(schemas::kFewShot, training::few_shot_json(gpu->name, *curves));
}

Result<void> run_calibrate(const Arguments& arguments) {
  PERFMODEL_TRY(few, read_tables(arguments, {arguments.calibrate}));
  PERFMODEL_TRY(
      made, training::calibrate(few->front(), arguments.base, arguments.output, arguments.points));
  for (const std::string& model : made->left_out)
    warn(model + ": has no correction, as it would not help rows that it has not seen");
  if (arguments.json) {
    return print_document(schemas::kCalibrate, training::calibration_json(*made, arguments.output));
  }
  TextTable table({"GPU", "model", "rows used", "others", "error before", "after"});
  for (const training::JudgedCalibration& judged : made->judged) {
    table.row({judged.gpu, judged.model, grouped(judged.used), grouped(judged.others),
               percent(judged.before), percent(judged.after)});
  }
  std::string text = table.empty() ? "" : "\n" + table.text(bold_allowed());
  return print_report(text + fmt::format("\n{} used, written to {}\n", counted(made->used, "row"),
                                         plain_text(arguments.output)));
}

Result<void> execute(const Arguments& arguments) {
  if (!arguments.few_shot.empty()) return run_few_shot(arguments);
  if (!arguments.calibrate.empty()) return run_calibrate(arguments);
  PERFMODEL_TRY(tables, read_tables(arguments, arguments.data));
  PERFMODEL_TRY(options, training::train_options(arguments));
  PERFMODEL_TRY_TO(training::check_model_output(arguments.output));
  const bool to_folder = training::is_model_folder(arguments.output);
  std::unique_ptr<ProgressBar> bar;
  std::string shown;
  options->progress = [&](const std::string& what, int done, int total) {
    const std::string model = what.substr(0, what.find(':'));
    if (model != shown) {
      bar = std::make_unique<ProgressBar>(model, static_cast<std::size_t>(total));
      shown = model;
    }
    bar->update(static_cast<std::size_t>(done));
  };
  const auto report = to_folder ? training::train_folder(*tables, *options, arguments.output)
                                : training::train(*tables, *options, arguments.output);
  bar.reset();
  if (!report) return Unexpected{report.error()};
  if (!arguments.report.empty()) PERFMODEL_TRY_TO(write_plots(arguments.report, *report));
  if (arguments.json) return print_document(schemas::kTrain, train_json(*report, arguments.output));
  return print_report(to_folder ? folder_text(*report, arguments.output)
                                : report_text(*report, arguments.output));
}

}  // namespace

Command train_command(CommandParser parent) {
  auto arguments = std::make_shared<Arguments>();
  const CommandParser app = add_train_command(parent, arguments);
  return {app, [arguments] { return execute(*arguments); }};
}

}  // namespace perfmodel::cli
