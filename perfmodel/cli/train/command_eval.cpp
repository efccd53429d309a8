#include <fmt/format.h>

#include <memory>

#include "cli/shared/command.hpp"
#include "eval_arguments.hpp"
#include "learned/graph_errors.hpp"
#include "learned/model_errors.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using Arguments = EvalArguments;
using training::GraphErrors;
using training::ModelErrors;

std::string errors_table(const std::vector<ModelErrors>& errors, const char* title) {
  return field_table(errors, training::kModelErrorFields,
                     {"name", "rows", "mape", "median_ape", "geomean_ape", "bias", "heuristic_mape",
                      "roofline_mape"},
                     title)
      .text(bold_allowed());
}

Result<void> eval_rows(const Arguments& arguments) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(judged, training::judge_model(arguments.files,
                                              {.gpu_folder = *data / "gpus",
                                               .gpu = arguments.gpu,
                                               .op = arguments.op,
                                               .dtype = arguments.dtype,
                                               .needs_time = true},
                                              arguments.model,
                                              {.only_llm = arguments.shapes == "llm",
                                               .only_train = arguments.shapes == "train",
                                               .min_us = arguments.min_us}));
  if (arguments.json) return print_document(schemas::kEval, judged_model_json(*judged));
  std::vector<ModelErrors> by_op = judged->by_op;
  by_op.push_back(judged->all);
  std::string text =
      "\nErrors of times as measured, launch cost of the campaign included where the "
      "model file knows it:\n\n" +
      errors_table(judged->by_device, "GPU") + "\n" + errors_table(by_op, "op") + "\n";
  text += fmt::format("{} of {} above the launch floor lie between low and high\n",
                      percent(judged->coverage), counted(judged->coverage_rows, "row"));
  if (judged->unseen_rows) {
    text += fmt::format("{} of GPUs that the model was not fitted on\n",
                        counted(judged->unseen_rows, "row"));
  }
  if (judged->unknown_rows) {
    text += fmt::format("{} of families that the model file does not know\n",
                        counted(judged->unknown_rows, "row"));
  }
  return print_report(text);
}

Result<void> eval_graphs(const Arguments& arguments) {
  PERFMODEL_TRY(judged,
                training::judge_graphs({arguments.files[0], arguments.files[1], arguments.files[2]},
                                       arguments.model.empty() ? arguments.models : arguments.model,
                                       arguments.kernel_gap_us));
  if (arguments.json) return print_document(schemas::kEvalGraphs, judged_graphs_json(*judged));
  // Errors in percent; the columns of four published predictors.
  const TextTable table =
      field_table(judged->graphs, training::kJudgedGraphColumns,
                  {"gpu", "graph", "suspect_label", "measured_ms", "error", "heuristic_error",
                   "neusight_error", "habitat_error", "li_error", "roofline_error"});
  std::vector<GraphErrors> rows = judged->by_device;
  for (GraphErrors errors : judged->by_vendor) {
    errors.name = "all of " + errors.name;
    rows.push_back(errors);
  }
  if (judged->other_options.rows) rows.push_back(judged->other_options);
  const TextTable means = field_table(rows, training::kGraphErrorFields,
                                      {"name", "rows", "mape", "heuristic_mape", "neusight_mape",
                                       "habitat_mape", "li_mape", "roofline_mape"});
  return print_report("\nErrors in percent of the measured latency:\n\n" +
                      table.text(bold_allowed()) + "\n" + means.text(bold_allowed()));
}

}  // namespace

Command eval_command(CommandParser parent) {
  auto arguments = std::make_shared<Arguments>();
  const CommandParser app = add_eval_command(parent, arguments);
  return {app, [arguments] {
            return arguments->graphs ? eval_graphs(*arguments) : eval_rows(*arguments);
          }};
}

}  // namespace perfmodel::cli
