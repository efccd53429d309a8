#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "arguments.hpp"
#include "command.hpp"
#include "output.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/output_file.hpp"
#include "perfmodel/progress_bar.hpp"
#include "perfmodel/predictors/training/svg_plot.hpp"
#include "perfmodel/predictors/training/train.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

using training::LeftOut;
using training::ModelReport;
using training::RowChoice;
using training::Validation;

struct Arguments {
  std::vector<std::string> data;
  std::string output, rows = "all", family, dtype, op, report, base, calibrate, few_shot, note;
  std::uint64_t seed = 1;
  bool grid = false, no_validation = false, json = false;
};

std::string percent(double share, int digits = 1) {
  return fmt::format("{:.{}f} %", 100 * share, digits);
}

ErrorSummary summary_of(const Validation& validation) {
  const auto summary = summarize_errors(validation.measured_us, validation.predicted_us);
  return summary ? *summary : ErrorSummary{};
}

Json summary_json(const ErrorSummary& summary) {
  return {{"rows", summary.rows},
          {"mape", summary.mape},
          {"median_ape", summary.median_ape},
          {"geomean_ape", summary.geomean_ape},
          {"bias", summary.bias}};
}

Result<std::vector<KernelTable>> read_tables(const Arguments& arguments,
                                             const std::vector<std::string>& files) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  std::vector<KernelTable> tables;
  for (const std::string& file : files) {
    auto table = read_kernel_table(file, {.gpu_folder = *data / "gpus",
                                          .op = arguments.op,
                                          .dtype = arguments.dtype,
                                          .needs_time = true});
    if (!table) return Unexpected{table.error()};
    tables.push_back(std::move(*table));
  }
  return tables;
}

std::optional<KernelFamily> family_by_name(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    if (to_string(static_cast<KernelFamily>(i)) == name) return static_cast<KernelFamily>(i);
  }
  return std::nullopt;
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
    options.family = family_by_name(arguments.family);
    if (!options.family) {
      return fail(
          ErrorCode::kUnknownName,
          "expected a kernel family (gemm, convolution, elementwise, softmax, norm), found \"" +
              arguments.family + "\"");
    }
  }
  Json card = {{"made_by", fmt::format("perfpredict {}", PERFMODEL_VERSION)},
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
    const ErrorSummary s = summary_of(validation);
    table.row({name, grouped(s.rows), percent(s.mape), percent(s.geomean_ape),
               fmt::format("{:+.1f} %", 100 * s.bias), percent(validation.coverage)});
  };
  add("random rows kept out", model.random);
  add("shapes kept out", model.grouped);
  return table.text(bold_allowed());
}

std::string left_out_table(const ModelReport& model) {
  TextTable table({"GPU left out", "rows", "learned", "heur.", "roofline", "best ratio", "<of",
                   "mean ratio", "in range"});
  for (const LeftOut& left : model.left_out) {
    const bool has_ratio = left.best_ratio.rows > 0;
    table.row({left.gpu, grouped(left.learned.rows), percent(left.learned.mape),
               percent(left.heuristic.mape), percent(left.roofline.mape),
               has_ratio ? percent(left.best_ratio.mape) : "", left.best_ratio_gpu,
               has_ratio ? percent(left.mean_ratio_mape) : "", percent(left.coverage)});
  }
  return table.text(bold_allowed());
}

std::string report_text(const training::TrainReport& report, const std::string& file) {
  std::string text;
  for (const ModelReport& model : report.models) {
    text += fmt::format("\n{}: {} rows fitted of {}\n", model.name, grouped(model.fitted_rows),
                        grouped(model.rows));
    if (model.is_resumed) text += "taken over from a run that was cut off\n";
    if (!model.random.measured_us.empty()) text += "\n" + kept_out_table(model);
    if (!model.left_out.empty()) {
      text += "\nMean absolute errors of kernel times, rows above the launch floor:\n\n" +
              left_out_table(model);
    }
  }
  return text + fmt::format("\nwritten to {}\n", file);
}

Json report_json(const training::TrainReport& report, const std::string& file) {
  Json json = {{"schema", "perfmodel-train"}, {"version", 1}, {"model", file_name(file)}};
  Json& models = json["models"] = Json::array();
  for (const ModelReport& model : report.models) {
    Json entry = {{"name", model.name}, {"rows", model.rows}, {"fitted_rows", model.fitted_rows}};
    entry["random"] = summary_json(summary_of(model.random));
    entry["random"]["coverage"] = model.random.coverage;
    entry["grouped"] = summary_json(summary_of(model.grouped));
    entry["grouped"]["coverage"] = model.grouped.coverage;
    Json& left_out = entry["left_out"] = Json::object();
    for (const LeftOut& left : model.left_out) {
      left_out[left.gpu] = {{"learned", summary_json(left.learned)},
                            {"heuristic", summary_json(left.heuristic)},
                            {"roofline", summary_json(left.roofline)},
                            {"best_ratio", summary_json(left.best_ratio)},
                            {"best_ratio_gpu", left.best_ratio_gpu},
                            {"mean_ratio_mape", left.mean_ratio_mape},
                            {"coverage", left.coverage}};
    }
    models.push_back(std::move(entry));
  }
  return json;
}

Result<void> write_file(const std::filesystem::path& file, const std::string& text) {
  auto output = OutputFile::create(file);
  if (!output) return Unexpected{output.error()};
  output->write(text);
  return output->commit();
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
  for (std::size_t i = 0; i < std::size(kCounts); ++i) {
    std::vector<std::string> cells{std::to_string(kCounts[i])};
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
    return print(fmt::format(
        "\nMean absolute error of the rows that were not measured, {} as a new GPU:\n\n{}",
        gpu->name, table.text(bold_allowed())));
  }
  Json json = {{"schema", "perfmodel-few-shot"}, {"version", 1}, {"gpu", gpu->name}};
  for (const auto& curve : *curves) {
    Json& points = json[curve.sampling] = Json::array();
    for (const auto& point : curve.points) {
      points.push_back({{"points", point.points},
                        {"mape", point.mean},
                        {"low", point.low},
                        {"high", point.high}});
    }
  }
  return print(to_text(json));
}

Result<void> run_calibrate(const Arguments& arguments) {
  const auto few = read_tables(arguments, {arguments.calibrate});
  if (!few) return Unexpected{few.error()};
  const auto rows = training::calibrate(few->front(), arguments.base, arguments.output);
  if (!rows) return Unexpected{rows.error()};
  if (arguments.json) {
    return print(to_text({{"schema", "perfmodel-calibrate"},
                          {"version", 1},
                          {"rows", *rows},
                          {"model", file_name(arguments.output)}}));
  }
  return print(fmt::format("\n{} used, written to {}\n", counted(*rows, "row"), arguments.output));
}

Result<void> execute(const Arguments& arguments) {
  if (!arguments.few_shot.empty()) return run_few_shot(arguments);
  if (!arguments.calibrate.empty()) return run_calibrate(arguments);
  const auto tables = read_tables(arguments, arguments.data);
  if (!tables) return Unexpected{tables.error()};
  auto options = train_options(arguments);
  if (!options) return Unexpected{options.error()};
  if (auto writable = OutputFile::create(arguments.output); !writable) {
    return Unexpected{writable.error()};  // before, not after all is fitted
  }
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
  const auto report = training::train(*tables, *options, arguments.output);
  bar.reset();
  if (!report) return Unexpected{report.error()};
  if (!arguments.report.empty()) {
    if (auto written = write_plots(arguments.report, *report); !written) return written;
  }
  return print(arguments.json ? to_text(report_json(*report, arguments.output))
                              : report_text(*report, arguments.output));
}

}  // namespace

Command train_command(CLI::App& parent) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* app = parent.add_subcommand("train", "Fits kernel models to measured kernels");
  app->add_option("DATA", arguments->data,
                  "Measured kernels (.csv or .csv.gz), see docs/formats.md")
      ->type_name("");
  app->add_option("-o,--output", arguments->output, "Model file to write")->type_name("FILE");
  app->add_option("--rows", arguments->rows,
                  "Rows to fit: all; train: not NeuSight's llm shapes; paper: its own fitting set")
      ->check(CLI::IsMember({"all", "train", "paper"}))
      ->capture_default_str();
  app->add_option("--family", arguments->family, "Only kernels of this family")->type_name("NAME");
  app->add_option("--op", arguments->op, "What rows are that do not say it")->type_name("NAME");
  app->add_option("--dtype", arguments->dtype, "Their element type")->type_name("NAME");
  app->add_option("--seed", arguments->seed, "Seed of splits and trees")->capture_default_str();
  app->add_option("--report", arguments->report, "Folder for plots (SVG)")->type_name("DIR");
  app->add_option("--note", arguments->note, "Licence and provenance, for the model card")
      ->type_name("TEXT");
  app->add_flag("--grid", arguments->grid,
                "Choose rounds and depth from a small grid, by shapes kept out");
  app->add_flag("--no-validation", arguments->no_validation,
                "Fit only: no errors, ranges as wide as a factor of two");
  auto* few =
      app->add_option("--calibrate", arguments->calibrate,
                      "A few measured kernels of a new GPU: corrects the models of --model");
  few->type_name("FEW.csv");
  auto* base =
      app->add_option("--model", arguments->base, "Model file to calibrate")->type_name("FILE");
  few->needs(base);
  base->needs(few);
  app->add_option("--few-shot", arguments->few_shot,
                  "Study: error on this GPU, left out, against the number of measured kernels")
      ->type_name("GPU");
  app->add_flag("--json", arguments->json, "Print one JSON document");
  app->callback([arguments, app] {
    if (arguments->data.empty() && arguments->calibrate.empty()) {
      throw CLI::RequiredError("DATA");
    }
    if (!arguments->data.empty() && !arguments->calibrate.empty()) {
      throw CLI::ValidationError("--calibrate", "takes the place of DATA");
    }
    if (arguments->output.empty() && arguments->few_shot.empty()) {
      throw CLI::RequiredError("--output");
    }
  });
  return {app, [arguments] { return execute(*arguments); }};
}

}  // namespace perfmodel::cli
