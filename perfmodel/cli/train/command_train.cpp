#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/plain_text.hpp"
#include "base/progress_bar.hpp"
#include "base/secrets.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/version.hpp"
#include "plot/error_plots.hpp"
#include "plot/svg_document.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"
#include "train_arguments.hpp"
#include "training/train.hpp"

namespace perfmodel::cli {
namespace {

using training::LeftOut;
using training::ModelReport;
using training::RangeCheck;
using training::RowChoice;
using training::Validation;

using Arguments = TrainArguments;

Json summary_json(const ErrorSummary& summary) {
  return {{"rows", summary.rows},
          {"mape", summary.mape},
          {"median_ape", summary.median_ape},
          {"geomean_ape", summary.geomean_ape},
          {"bias", summary.bias}};
}

Result<std::vector<KernelTable>> read_tables(const Arguments& arguments,
                                             const std::vector<std::string>& paths) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  return read_kernel_tables(paths, {.gpu_folder = *data / "gpus",
                                    .gpu = arguments.gpu,
                                    .op = arguments.op,
                                    .dtype = arguments.dtype,
                                    .needs_time = true});
}

Result<training::TrainOptions> train_options(const Arguments& arguments) {
  training::TrainOptions options;
  options.seed = arguments.seed;
  options.rows = arguments.rows == "paper"   ? RowChoice::kPaper
                 : arguments.rows == "train" ? RowChoice::kTrain
                                             : RowChoice::kAll;
  options.validate = !arguments.no_validation;
  options.tries_grid = arguments.grid;
  if (!arguments.family.empty()) {
    options.family = parse_kernel_family(arguments.family);
    if (!options.family) {
      return fail(ErrorCode::kUnknownName,
                  fmt::format("expected a kernel family ({}), found \"{}\"",
                              fmt::join(training::learned_families(), ", "), arguments.family));
    }
  }
  Json card = {{"made_by", fmt::format("perfpredict {}", version_text())},
               {"rows_chosen", arguments.rows}};
  Json& data = card["data"] = Json::array();
  for (const std::string& file : arguments.data) data.push_back(file_name(file));
  if (!arguments.note.empty()) card["note"] = arguments.note;
  options.card = card.dump();
  return options;
}

std::string kept_out_table(const ModelReport& model) {
  TextTable table({"", "rows", "mean", "geometric mean", "bias", "in range low-high"});
  const auto add = [&](const std::string& name, const Validation& validation) {
    const ErrorSummary s = validation.errors();
    table.row({name, grouped(s.rows), percent(s.mape), percent(s.geomean_ape),
               signed_percent(s.bias), percent(validation.coverage)});
  };
  add("random rows kept out", model.random);
  add("shapes kept out", model.grouped);
  return table.text(bold_allowed());
}

std::string left_out_table(const ModelReport& model) {
  TextTable table({"GPU left out", "<known", "rows", "learned", "heur.", "roofline", "x const",
                   "ratio", "<of", "mean"});
  for (const auto* list : {&model.left_out, &model.farther_left_out}) {
    for (const LeftOut& left : *list) {
      const bool has_ratio = left.best_ratio.rows > 0;
      table.row({left.gpu, std::string(to_string(left.level)), grouped(left.learned.rows),
                 percent(left.learned.mape), percent(left.heuristic.mape),
                 percent(left.roofline.mape), percent(left.scaled_roofline.mape),
                 has_ratio ? percent(left.best_ratio.mape) : "", left.best_ratio_gpu,
                 has_ratio ? percent(left.mean_ratio_mape) : ""});
    }
  }
  return table.text(bold_allowed());
}

/// Per level of knowledge all GPUs together, and the GPU whose rows the range holds worst.
std::string ranges_table(const ModelReport& model) {
  TextTable table({"known", "<GPU kept out", "rows", "in range", "<by the other GPUs alone"});
  for (const RangeCheck& check : model.ranges) {
    table.row({std::string(to_string(check.level)), check.gpu, grouped(check.rows),
               percent(check.inside), check.by_others ? percent(*check.by_others) : ""});
  }
  return table.text(bold_allowed());
}

constexpr std::string_view kOneGpu =
    "measured on one GPU: errors on GPUs that were not measured cannot be told";

/// What was read and is in no model.
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

Json left_out_json(const LeftOut& left) {
  return {{"knowledge", to_string(left.level)},
          {"learned", summary_json(left.learned)},
          {"heuristic", summary_json(left.heuristic)},
          {"roofline", summary_json(left.roofline)},
          {"scaled_roofline", summary_json(left.scaled_roofline)},
          {"best_ratio", summary_json(left.best_ratio)},
          {"best_ratio_gpu", left.best_ratio_gpu},
          {"mean_ratio_mape", left.mean_ratio_mape},
          {"coverage", left.coverage}};
}

Json report_json(const training::TrainReport& report, std::string file) {
  while (file.size() > 1 && file.ends_with('/')) file.pop_back();
  Json json = document(schemas::kTrain);
  json["model"] = file_name(file);
  Json& models = json["models"] = Json::array();
  for (const ModelReport& model : report.models) {
    Json entry = {{"name", model.name},
                  {"rows", model.rows},
                  {"fitted_rows", model.fitted_rows},
                  {"gpus", model.gpus}};
    if (!model.file.empty()) entry["file"] = model.file;
    entry["random"] = summary_json(model.random.errors());
    entry["random"]["coverage"] = model.random.coverage;
    entry["grouped"] = summary_json(model.grouped.errors());
    entry["grouped"]["coverage"] = model.grouped.coverage;
    Json& left_out = entry["left_out"] = Json::object();
    for (const LeftOut& left : model.left_out) left_out[left.gpu] = left_out_json(left);
    Json& farther = entry["farther_left_out"] = Json::array();
    for (const LeftOut& left : model.farther_left_out) {
      farther.push_back(left_out_json(left));
      farther.back()["gpu"] = left.gpu;
    }
    Json& ranges = entry["ranges"] = Json::array();
    for (const RangeCheck& check : model.ranges) {
      ranges.push_back(
          {{"knowledge", to_string(check.level)},
           {"gpu", check.gpu},
           {"rows", check.rows},
           {"in_range", check.inside},
           {"in_range_by_others", check.by_others ? Json(*check.by_others) : Json(nullptr)}});
    }
    models.push_back(std::move(entry));
  }
  Json& skipped = json["skipped"] = Json::array();
  for (const auto& entry : report.skipped) {
    skipped.push_back({{"name", entry.name}, {"rows", entry.rows}, {"reason", entry.reason}});
  }
  json["other_families"] = report.other_families;
  json["warm_rows"] = report.warm_rows;
  return json;
}

std::vector<TimeGroup> groups_by(const std::vector<std::string>& names,
                                 const Validation& validation) {
  std::vector<TimeGroup> groups;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto at = std::find_if(groups.begin(), groups.end(),
                           [&](const TimeGroup& group) { return group.name == names[i]; });
    if (at == groups.end()) at = groups.insert(at, TimeGroup{names[i], {}, {}});
    at->measured_us.push_back(validation.measured_us[i]);
    at->predicted_us.push_back(validation.predicted_us[i]);
  }
  return groups;
}

/// Kept-out rows of one model: predicted against measured, by GPU and by op, and errors by size.
Result<std::string> plots_of(const ModelReport& model) {
  const Validation& kept = model.random;
  auto by_gpu = scatter_panel(
      {.title = "Random rows kept out, by GPU", .groups = groups_by(kept.gpus, kept)});
  if (!by_gpu) return Unexpected{by_gpu.error()};
  auto by_op = scatter_panel({.title = "The same, by op", .groups = groups_by(kept.ops, kept)});
  if (!by_op) return Unexpected{by_op.error()};
  auto by_size = error_by_size_panel({.title = "Error by measured time",
                                      .measured_us = kept.measured_us,
                                      .predicted_us = kept.predicted_us});
  if (!by_size) return Unexpected{by_size.error()};
  auto new_shapes = error_by_size_panel({.title = "Error by measured time, shapes kept out",
                                         .measured_us = model.grouped.measured_us,
                                         .predicted_us = model.grouped.predicted_us});
  if (!new_shapes) return Unexpected{new_shapes.error()};
  return svg_document(model.name, fmt::format("{} rows fitted", grouped(model.fitted_rows)),
                      {*by_gpu, *by_op, *by_size, *new_shapes}, 2);
}

Result<void> write_plots(const std::string& folder, const training::TrainReport& report) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  for (const ModelReport& model : report.models) {
    if (model.random.measured_us.empty() || model.grouped.measured_us.empty()) continue;
    const auto svg = plots_of(model);
    if (!svg) return Unexpected{svg.error()};
    auto written = write_file(std::filesystem::path(folder) / (model.name + ".svg"), *svg);
    if (!written) return written;
  }
  return {};
}

Result<void> run_few_shot(const Arguments& arguments) {
  const auto tables = read_tables(arguments, arguments.data);
  if (!tables) return Unexpected{tables.error()};
  const auto options = train_options(arguments);
  if (!options) return Unexpected{options.error()};
  const auto gpu = find_gpu(arguments.few_shot, *find_data_folder() / "gpus");
  if (!gpu) return Unexpected{gpu.error()};
  constexpr int kCounts[] = {3, 5, 10, 20, 50, 100, 200};
  constexpr int kSeeds = 3;
  const auto curves = training::few_shot(*tables, *options, gpu->name, kCounts, kSeeds);
  if (!curves) return Unexpected{curves.error()};
  TextTable table({"measured kernels", "random", "<lowest-highest", "k-means", "<lowest-highest"});
  FewShotPlot plot{.title = "Error on " + gpu->name + " against measured kernels"};
  for (const auto& curve : *curves) {
    FewShotSeries series{.name = curve.sampling, .points = {}};
    for (const auto& point : curve.points) {
      series.points.push_back(
          {static_cast<double>(point.points), point.mean, point.low, point.high});
    }
    plot.series.push_back(std::move(series));
  }
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
    const auto panel = few_shot_panel(plot);
    if (!panel) return Unexpected{panel.error()};
    const auto svg =
        svg_document("Few-shot calibration", "mean of three draws and their range", {*panel}, 1);
    if (!svg) return Unexpected{svg.error()};
    std::error_code failure;
    std::filesystem::create_directories(arguments.report, failure);
    auto written = write_file(
        std::filesystem::path(arguments.report) / ("few-shot-" + gpu->name + ".svg"), *svg);
    if (!written) return written;
  }
  if (!arguments.json) {
    return print_report(fmt::format(
        "\nMean absolute error of the rows that were not measured, {} as a new GPU:\n\n{}",
        plain_text(gpu->name), table.text(bold_allowed())));
  }
  Json json = document(schemas::kFewShot);
  json["gpu"] = gpu->name;
  for (const auto& curve : *curves) {
    Json& points = json[curve.sampling] = Json::array();
    for (const auto& point : curve.points) {
      points.push_back({{"points", point.points},
                        {"mape", point.mean},
                        {"low", point.low},
                        {"high", point.high}});
    }
  }
  return print_document(json);
}

Result<void> run_calibrate(const Arguments& arguments) {
  const auto few = read_tables(arguments, {arguments.calibrate});
  if (!few) return Unexpected{few.error()};
  const auto rows = training::calibrate(few->front(), arguments.base, arguments.output);
  if (!rows) return Unexpected{rows.error()};
  if (arguments.json) {
    Json json = document(schemas::kCalibrate);
    json.update({{"rows", *rows}, {"model", file_name(arguments.output)}});
    return print_document(json);
  }
  return print_report(fmt::format("\n{} used, written to {}\n", counted(*rows, "row"),
                                  plain_text(arguments.output)));
}

bool is_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || std::filesystem::is_directory(output, ignored);
}

/// Before, not after all is fitted.
Result<void> check_output(const std::string& output) {
  std::error_code failure;
  if (is_folder(output)) {
    std::filesystem::create_directories(output, failure);
    if (failure) {
      return Unexpected{
          Error{.code = ErrorCode::kIo,
                .message = "expected a folder to write to, found " + failure.message(),
                .file = output}};
    }
  }
  std::filesystem::path file = output;
  if (is_folder(output)) file /= "model.json";
  auto writable = OutputFile::create(file);
  if (!writable) return Unexpected{writable.error()};
  return {};
}

Result<void> execute(const Arguments& arguments) {
  if (!arguments.few_shot.empty()) return run_few_shot(arguments);
  if (!arguments.calibrate.empty()) return run_calibrate(arguments);
  const auto tables = read_tables(arguments, arguments.data);
  if (!tables) return Unexpected{tables.error()};
  auto options = train_options(arguments);
  if (!options) return Unexpected{options.error()};
  if (auto writable = check_output(arguments.output); !writable) return writable;
  const bool to_folder = is_folder(arguments.output);
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
  if (!arguments.report.empty()) {
    if (auto written = write_plots(arguments.report, *report); !written) return written;
  }
  if (arguments.json) return print_document(report_json(*report, arguments.output));
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
