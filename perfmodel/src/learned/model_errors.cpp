#include "model_errors.hpp"

#include <map>

#include "base/file_name.hpp"

namespace perfmodel::training {
namespace {

std::string bias_text(double bias) { return signed_percent(bias); }

/// Times in microseconds, per row.
struct JudgedRows {
  std::vector<double> measured, learned, heuristic, roofline;

  void add(const EvalReport& report, std::size_t row) {
    measured.push_back(report.rows.measured_us[row]);
    learned.push_back(report.rows.predicted_us[row]);
    heuristic.push_back(report.heuristic_us[row]);
    roofline.push_back(report.roofline_us[row]);
  }
  ModelErrors errors(const std::string& name) const {
    return {.name = name,
            .learned = summary_of(measured, learned),
            .heuristic_mape = summary_of(measured, heuristic).mape,
            .roofline_mape = summary_of(measured, roofline).mape};
  }
};

std::vector<ModelErrors> errors_by_name(const std::map<std::string, JudgedRows>& groups) {
  std::vector<ModelErrors> errors;
  for (const auto& [name, rows] : groups) errors.push_back(rows.errors(name));
  return errors;
}

}  // namespace

std::string share_text(double share) { return percent(share); }

const ResultFields<ErrorSummary> kErrorSummaryFields = {
    {"rows", &ErrorSummary::rows, "rows"},
    {"mape", &ErrorSummary::mape, Digits::kAll, "mean", share_text},
    {"median_ape", &ErrorSummary::median_ape, Digits::kAll, "median", share_text},
    {"geomean_ape", &ErrorSummary::geomean_ape, Digits::kAll, "geometric mean", share_text},
    {"bias", &ErrorSummary::bias, Digits::kAll, "bias", bias_text},
};

const ResultFields<ModelErrors> kModelErrorFields = joined_fields<ModelErrors>(
    {{{"name", &ModelErrors::name}},
     part_fields<ModelErrors>(&ModelErrors::learned, kErrorSummaryFields),
     {{"heuristic_mape", &ModelErrors::heuristic_mape, Digits::kAll, "heuristic", share_text},
      {"roofline_mape", &ModelErrors::roofline_mape, Digits::kAll, "roofline", share_text}}});

KeptOut kept_out(const std::string& name, const Validation& validation) {
  return {name, validation.errors(), validation.coverage};
}

const ResultFields<KeptOut> kKeptOutFields = joined_fields<KeptOut>(
    {{{"name", &KeptOut::name}},
     part_fields<KeptOut>(&KeptOut::errors, kErrorSummaryFields),
     {{"coverage", &KeptOut::coverage, Digits::kAll, "in range low-high", share_text}}});

Result<JudgedModel> judge_model(const std::vector<std::string>& tables,
                                const KernelTableOptions& reading,
                                const std::filesystem::path& model, const EvalOptions& options) {
  JudgedModel judged{.model = file_name(model)};
  JudgedRows all;
  std::map<std::string, JudgedRows> by_device, by_op;
  double inside = 0;
  for (const std::string& file : tables) {
    PERFMODEL_TRY(table, read_kernel_table(file, reading));
    PERFMODEL_TRY(report, evaluate(*table, model, options));
    for (std::size_t i = 0; i < report->rows.measured_us.size(); ++i) {
      all.add(*report, i);
      by_device[report->rows.gpus[i]].add(*report, i);
      by_op[report->rows.ops[i]].add(*report, i);
    }
    judged.unknown_rows += report->unknown_rows;
    judged.unseen_rows += report->unseen_rows;
    judged.coverage_rows += report->rows.coverage_rows;
    inside += report->rows.coverage * static_cast<double>(report->rows.coverage_rows);
  }
  if (judged.coverage_rows) judged.coverage = inside / static_cast<double>(judged.coverage_rows);
  judged.all = all.errors("all");
  judged.by_device = errors_by_name(by_device);
  judged.by_op = errors_by_name(by_op);
  return judged;
}

OrderedJson judged_model_json(const JudgedModel& judged) {
  const auto members = [](const ModelErrors& errors) {
    OrderedJson json = json_object(errors, kModelErrorFields);
    json.erase("name");
    return json;
  };
  OrderedJson json = {{"model", judged.model}};
  json.update(members(judged.all));
  json["coverage"] = judged.coverage;
  json["unknown_rows"] = judged.unknown_rows;
  json["rows_of_unseen_gpus"] = judged.unseen_rows;
  for (const ModelErrors& of : judged.by_device) json["by_device"][of.name] = members(of);
  for (const ModelErrors& of : judged.by_op) json["by_op"][of.name] = members(of);
  return json;
}

}  // namespace perfmodel::training
