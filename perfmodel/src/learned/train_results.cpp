#include "train_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/each_name.hpp"
#include "base/file_name.hpp"
#include "model_errors.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/version.hpp"
#include "plot/error_plots.hpp"
#include "plot/svg_document.hpp"

namespace perfmodel::training {
namespace {

// Mean error of the models of one kind, as a cell.
auto mean_error(ErrorSummary LeftOut::*errors) {
  return [errors](const LeftOut& left) { return share_text((left.*errors).mape); };
}
std::string best_ratio_text(const LeftOut& left) {
  return left.best_ratio.rows > 0 ? share_text(left.best_ratio.mape) : "";
}
std::string mean_ratio_text(const LeftOut& left) {
  return left.best_ratio.rows > 0 ? share_text(left.mean_ratio_mape) : "";
}

auto errors_json(ErrorSummary LeftOut::*errors) { return object_of(errors, kErrorSummaryFields); }

const ResultFields<LeftOut> kLeftOutFields = {
    {"knowledge", &LeftOut::level, "<known"},
    {"learned", errors_json(&LeftOut::learned), "learned", mean_error(&LeftOut::learned)},
    {"heuristic", errors_json(&LeftOut::heuristic), "heur.", mean_error(&LeftOut::heuristic)},
    {"roofline", errors_json(&LeftOut::roofline), "roofline", mean_error(&LeftOut::roofline)},
    {"scaled_roofline", errors_json(&LeftOut::scaled_roofline), "x const",
     mean_error(&LeftOut::scaled_roofline)},
    {"best_ratio", errors_json(&LeftOut::best_ratio), "ratio", best_ratio_text},
    {"best_ratio_gpu", &LeftOut::best_ratio_gpu, "<of"},
    {"mean_ratio_mape", &LeftOut::mean_ratio_mape, Digits::kAll, "mean", mean_ratio_text},
    {"coverage", &LeftOut::coverage, Digits::kAll},
};

const ResultFields<TrainReport::Skipped> kSkippedFields = {
    PERFMODEL_FIELDS(TrainReport::Skipped, name, rows, reason),
};

OrderedJson validation_json(const Validation& validation) {
  OrderedJson json = json_object(validation.errors(), kErrorSummaryFields);
  json["coverage"] = validation.coverage;
  return json;
}

OrderedJson model_json(const ModelReport& model) {
  OrderedJson json = {PERFMODEL_VALUES(model, name, rows, fitted_rows, gpus)};
  if (!model.file.empty()) json["file"] = model.file;
  json["random"] = validation_json(model.random);
  json["grouped"] = validation_json(model.grouped);
  json["left_out"] = OrderedJson::object();
  for (const LeftOut& left : model.left_out) {
    json["left_out"][left.gpu] = json_object(left, kLeftOutFields);
  }
  json["farther_left_out"] = json_list(model.farther_left_out, kLeftOutFields);
  for (std::size_t i = 0; i < model.farther_left_out.size(); ++i) {
    json["farther_left_out"][i]["gpu"] = model.farther_left_out[i].gpu;
  }
  json["ranges"] = json_list(model.ranges, kRangeCheckFields);
  return json;
}

std::vector<TimeGroup> groups_by(const std::vector<std::string>& names,
                                 const Validation& validation) {
  std::vector<TimeGroup> groups;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto at = std::ranges::find(groups, names[i], &TimeGroup::name);
    if (at == groups.end()) at = groups.insert(at, TimeGroup{names[i], {}, {}});
    at->measured_us.push_back(validation.measured_us[i]);
    at->predicted_us.push_back(validation.predicted_us[i]);
  }
  return groups;
}

}  // namespace

const ResultFields<LeftOut> kLeftOutColumns = joined_fields<LeftOut>(
    {kLeftOutFields,
     {{"gpu", &LeftOut::gpu, "GPU left out"},
      {"rows", [](const LeftOut& left) { return left.learned.rows; }, "rows"}}});

const ResultFields<RangeCheck> kRangeCheckFields = {
    {"knowledge", &RangeCheck::level, "known"},
    {"gpu", &RangeCheck::gpu, "<GPU kept out"},
    {"rows", &RangeCheck::rows, "rows"},
    {"in_range", &RangeCheck::inside, Digits::kAll, "in range", share_text},
    {"in_range_by_others", &RangeCheck::by_others, Digits::kAll, "<by the other GPUs alone",
     share_text},
};

const ResultFields<FewShotPointError> kFewShotFields = {
    {"points", &FewShotPointError::points},
    {"mape", &FewShotPointError::mean, Digits::kAll},
    {"low", &FewShotPointError::low, Digits::kAll},
    {"high", &FewShotPointError::high, Digits::kAll},
};

OrderedJson train_json(const TrainReport& report, std::string output) {
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  OrderedJson models = OrderedJson::array();
  for (const ModelReport& model : report.models) models.push_back(model_json(model));
  return {{"model", file_name(output)},
          {"models", std::move(models)},
          {"skipped", json_list(report.skipped, kSkippedFields)},
          {"other_families", report.other_families},
          {"warm_rows", report.warm_rows}};
}

OrderedJson few_shot_json(const std::string& gpu, std::span<const FewShotCurve> curves) {
  OrderedJson json = {{"gpu", gpu}};
  for (const FewShotCurve& curve : curves) {
    json[curve.sampling] = json_list(curve.points, kFewShotFields);
  }
  return json;
}

OrderedJson calibration_json(const Calibration& made, const std::string& output) {
  static const ResultFields<JudgedCalibration> kFields = {
      PERFMODEL_FIELDS(JudgedCalibration, gpu, model),
      {"rows", &JudgedCalibration::used},
      {"others", &JudgedCalibration::others},
      {"before", &JudgedCalibration::before, Digits::kAll},
      {"after", &JudgedCalibration::after, Digits::kAll},
  };
  OrderedJson json = {{"rows", made.used}, {"model", file_name(output)}};
  if (!made.judged.empty()) json["judged"] = json_list(made.judged, kFields);
  return json;
}

Result<TrainOptions> train_options(const TrainQuestion& question) {
  TrainOptions options;
  options.seed = question.seed;
  options.rows = question.rows == "paper"   ? RowChoice::kPaper
                 : question.rows == "train" ? RowChoice::kTrain
                                            : RowChoice::kAll;
  options.validate = !question.no_validation;
  options.tries_grid = question.grid;
  if (!question.family.empty()) {
    options.family = parse_kernel_family(question.family);
    if (!options.family) {
      return fail(ErrorCode::kUnknownName,
                  fmt::format("expected a kernel family ({}), found \"{}\"",
                              fmt::join(learned_families(), ", "), question.family));
    }
  }
  OrderedJson card = {{"made_by", fmt::format("perfpredict {}", version_text())},
                      {"rows_chosen", question.rows}};
  OrderedJson& data = card["data"] = OrderedJson::array();
  for (const std::string& file : question.data) data.push_back(file_name(file));
  if (!question.note.empty()) card["note"] = question.note;
  options.card = card.dump();
  return options;
}

bool is_model_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || std::filesystem::is_directory(output, ignored);
}

Result<void> check_model_output(const std::string& output) {
  std::filesystem::path file = output;
  if (is_model_folder(output)) {
    PERFMODEL_TRY_TO(make_folder(output, "expected a folder to write to, found "));
    file /= "model.json";
  }
  PERFMODEL_TRY(writable, OutputFile::create(file));
  return {};
}

Result<std::string> model_plots(const ModelReport& model) {
  const Validation& kept = model.random;
  PERFMODEL_TRY(by_gpu, scatter_panel({.title = "Random rows kept out, by GPU",
                                       .groups = groups_by(kept.gpus, kept)}));
  PERFMODEL_TRY(by_op,
                scatter_panel({.title = "The same, by op", .groups = groups_by(kept.ops, kept)}));
  PERFMODEL_TRY(by_size, error_by_size_panel({.title = "Error by measured time",
                                              .measured_us = kept.measured_us,
                                              .predicted_us = kept.predicted_us}));
  PERFMODEL_TRY(new_shapes, error_by_size_panel({.title = "Error by measured time, shapes kept out",
                                                 .measured_us = model.grouped.measured_us,
                                                 .predicted_us = model.grouped.predicted_us}));
  return svg_document(model.name, fmt::format("{} rows fitted", grouped(model.fitted_rows)),
                      {*by_gpu, *by_op, *by_size, *new_shapes}, 2);
}

Result<std::string> few_shot_plot(const std::string& gpu, std::span<const FewShotCurve> curves) {
  FewShotPlot plot{.title = "Error on " + gpu + " against measured kernels"};
  for (const FewShotCurve& curve : curves) {
    FewShotSeries& series = plot.series.emplace_back(FewShotSeries{curve.sampling, {}});
    for (const FewShotPointError& point : curve.points) {
      series.points.push_back(
          {static_cast<double>(point.points), point.mean, point.low, point.high});
    }
  }
  PERFMODEL_TRY(panel, few_shot_panel(plot));
  return svg_document("Few-shot calibration", "mean of three draws and their range", {*panel}, 1);
}

}  // namespace perfmodel::training
