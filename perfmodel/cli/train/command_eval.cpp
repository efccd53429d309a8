#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "eval_arguments.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "tables/graph_latency.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"
#include "training/train.hpp"

namespace perfmodel::cli {
namespace {

using Arguments = EvalArguments;

/// Rows of one GPU or op, or all.
struct Slice {
  std::vector<double> measured, learned, heuristic, roofline;
  void add(const training::EvalReport& report, std::size_t i) {
    measured.push_back(report.rows.measured_us[i]);
    learned.push_back(report.rows.predicted_us[i]);
    heuristic.push_back(report.heuristic_us[i]);
    roofline.push_back(report.roofline_us[i]);
  }
  Json json() const {
    const ErrorSummary s = summary_of(measured, learned);
    return {{"rows", s.rows},
            {"mape", s.mape},
            {"median_ape", s.median_ape},
            {"geomean_ape", s.geomean_ape},
            {"bias", s.bias},
            {"heuristic_mape", summary_of(measured, heuristic).mape},
            {"roofline_mape", summary_of(measured, roofline).mape}};
  }
  void add_to(TextTable& table, const std::string& name) const {
    const ErrorSummary s = summary_of(measured, learned);
    table.row({name, grouped(s.rows), percent(s.mape), percent(s.median_ape),
               percent(s.geomean_ape), signed_percent(s.bias),
               percent(summary_of(measured, heuristic).mape),
               percent(summary_of(measured, roofline).mape)});
  }
};

Result<void> eval_rows(const Arguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  Slice all;
  std::map<std::string, Slice> by_device, by_op;
  std::size_t unknown = 0, unseen = 0, coverage_rows = 0;
  double inside = 0;
  for (const std::string& file : arguments.files) {
    const auto table = read_kernel_table(file, {.gpu_folder = *data / "gpus",
                                                .gpu = arguments.gpu,
                                                .op = arguments.op,
                                                .dtype = arguments.dtype,
                                                .needs_time = true});
    if (!table) return Unexpected{table.error()};
    const auto report = training::evaluate(*table, arguments.model,
                                           {.only_llm = arguments.shapes == "llm",
                                            .only_train = arguments.shapes == "train",
                                            .min_us = arguments.min_us});
    if (!report) return Unexpected{report.error()};
    for (std::size_t i = 0; i < report->rows.measured_us.size(); ++i) {
      all.add(*report, i);
      by_device[report->rows.gpus[i]].add(*report, i);
      by_op[report->rows.ops[i]].add(*report, i);
    }
    unknown += report->unknown_rows;
    unseen += report->unseen_rows;
    coverage_rows += report->rows.coverage_rows;
    inside += report->rows.coverage * static_cast<double>(report->rows.coverage_rows);
  }
  const double coverage = coverage_rows ? inside / static_cast<double>(coverage_rows) : 0;
  if (arguments.json) {
    Json json = document(schemas::kEval);
    json["model"] = file_name(arguments.model);
    json.update(all.json());
    json["coverage"] = coverage;
    json["unknown_rows"] = unknown;
    json["rows_of_unseen_gpus"] = unseen;
    for (const auto& [name, slice] : by_device) json["by_device"][name] = slice.json();
    for (const auto& [name, slice] : by_op) json["by_op"][name] = slice.json();
    return print_document(json);
  }
  std::string text =
      "\nErrors of times as measured, launch cost of the campaign included where the "
      "model file knows it:\n\n";
  for (const auto& [title, slices] : {std::pair{"GPU", &by_device}, std::pair{"op", &by_op}}) {
    TextTable table(
        {title, "rows", "mean", "median", "geometric mean", "bias", "heuristic", "roofline"});
    for (const auto& [name, slice] : *slices) slice.add_to(table, name);
    if (std::string_view(title) == "op") all.add_to(table, "all");
    text += table.text(bold_allowed()) + "\n";
  }
  text += fmt::format("{} of {} above the launch floor lie between low and high\n",
                      percent(coverage), counted(coverage_rows, "row"));
  if (unseen)
    text += fmt::format("{} of GPUs that the model was not fitted on\n", counted(unseen, "row"));
  if (unknown)
    text +=
        fmt::format("{} of families that the model file does not know\n", counted(unknown, "row"));
  return print_report(text);
}

struct GraphRow {
  const MeasuredGraph* measured;
  std::string gpu, vendor;
  double ours_ms, heuristic_ms;
};

double error_of(double predicted, double measured) { return predicted / measured - 1; }

std::string error_cell(double predicted, double measured) {
  return std::isfinite(predicted) ? fmt::format("{:+.1f}", 100 * error_of(predicted, measured))
                                  : "";
}

/// Mean absolute errors of one GPU (or all), by option.
struct GraphErrors {
  std::size_t rows = 0, published = 0;
  double ours = 0, heuristic = 0, neusight = 0, roofline = 0, habitat = 0, li = 0;
  void add(const GraphRow& row) {
    const MeasuredGraph& m = *row.measured;
    ++rows;
    ours += std::abs(error_of(row.ours_ms, m.measured_ms));
    heuristic += std::abs(error_of(row.heuristic_ms, m.measured_ms));
    neusight += std::abs(error_of(m.neusight_ms, m.measured_ms));
    if (!std::isfinite(m.roofline_ms)) return;
    ++published;
    roofline += std::abs(error_of(m.roofline_ms, m.measured_ms));
    habitat += std::abs(error_of(m.habitat_ms, m.measured_ms));
    li += std::abs(error_of(m.li_ms, m.measured_ms));
  }
  double mean(double sum) const { return rows ? sum / static_cast<double>(rows) : 0; }
  double published_mean(double sum) const {
    return published ? sum / static_cast<double>(published)
                     : std::numeric_limits<double>::quiet_NaN();
  }
  Json json() const {
    Json json = {{"rows", rows},
                 {"mape", mean(ours)},
                 {"heuristic_mape", mean(heuristic)},
                 {"neusight_mape", rounded(mean(neusight))}};
    json["roofline_mape"] = rounded(published_mean(roofline));
    json["habitat_mape"] = rounded(published_mean(habitat));
    json["li_mape"] = rounded(published_mean(li));
    return json;
  }
};

Result<std::vector<GraphRow>> graph_rows(const Arguments& arguments, const MeasuredGraphs& measured,
                                         const ChosenKernelModels& models) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const auto table = read_kernel_table(arguments.files[0], {.gpu_folder = *data / "gpus"});
  if (!table) return Unexpected{table.error()};
  const auto specs = read_graph_specs(arguments.files[1]);
  if (!specs) return Unexpected{specs.error()};
  std::vector<GraphRow> rows;
  for (std::size_t gpu = 0; gpu < measured.gpus.size(); ++gpu) {
    std::vector<GraphSpec> wanted;  // only what was measured there: some graphs need links
    for (const GraphSpec& spec : *specs) {
      const bool is_measured =
          std::any_of(measured.rows.begin(), measured.rows.end(), [&](const MeasuredGraph& row) {
            return row.gpu == static_cast<int>(gpu) && row.graph == spec.graph;
          });
      if (is_measured) wanted.push_back(spec);
    }
    const Microseconds gap{arguments.kernel_gap_us};
    const auto price = [&](const KernelModels& kernel_models) {
      return graph_latencies(*table, wanted, measured.gpus[gpu],
                             [&](const KernelRow&, const KernelWork& work, const Gpu& device) {
                               return kernel_models.price(work, device).time + gap;
                             });
    };
    const auto ours = price(models.models), heuristic = price(KernelModels::heuristic());
    if (!ours) return Unexpected{ours.error()};
    if (!heuristic) return Unexpected{heuristic.error()};
    for (const MeasuredGraph& row : measured.rows) {
      if (row.gpu != static_cast<int>(gpu)) continue;
      const auto at = std::find_if(wanted.begin(), wanted.end(),
                                   [&](const GraphSpec& spec) { return spec.graph == row.graph; });
      if (at == wanted.end()) {
        return Unexpected{Error{.code = ErrorCode::kFormat,
                                .message = "expected a graph of " + file_name(arguments.files[1]) +
                                           ", found \"" + row.graph + "\"",
                                .file = arguments.files[2],
                                .json_pointer = "graph",
                                .line = row.line}};
      }
      const auto i = static_cast<std::size_t>(at - wanted.begin());
      rows.push_back({&row, measured.gpus[gpu].name, measured.gpus[gpu].vendor,
                      (*ours)[i].total.count() / 1000, (*heuristic)[i].total.count() / 1000});
    }
  }
  if (auto readable = models.check(); !readable) return Unexpected{readable.error()};
  return rows;
}

Result<void> eval_graphs(const Arguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const auto models =
      choose_kernel_models(arguments.model.empty() ? arguments.models : arguments.model);
  if (!models) return Unexpected{models.error()};
  const auto measured = read_measured_graphs(arguments.files[2], *data / "gpus");
  if (!measured) return Unexpected{measured.error()};
  const auto rows = graph_rows(arguments, *measured, *models);
  if (!rows) return Unexpected{rows.error()};
  std::map<std::string, GraphErrors> by_device, by_vendor;
  GraphErrors all, others;
  for (const GraphRow& row : *rows) {
    if (row.measured->option == "none") {
      by_device[row.gpu].add(row);
      by_vendor[row.vendor].add(row);
      all.add(row);
    } else {
      others.add(row);
    }
  }
  if (arguments.json) {
    Json json = document(schemas::kEvalGraphs);
    json.update(all.json());
    json["kernel_gap_us"] = arguments.kernel_gap_us;
    json["other_options"] = others.json();
    for (const auto& [name, errors] : by_device) json["by_device"][name] = errors.json();
    for (const auto& [name, errors] : by_vendor) json["by_vendor"][name] = errors.json();
    Json& list = json["graphs"] = Json::array();
    for (const GraphRow& row : *rows) {
      const MeasuredGraph& m = *row.measured;
      list.push_back({{"gpu", row.gpu},
                      {"graph", m.graph},
                      {"option", m.option},
                      {"measured_ms", m.measured_ms},
                      {"predicted_ms", row.ours_ms},
                      {"heuristic_ms", row.heuristic_ms},
                      {"error", error_of(row.ours_ms, m.measured_ms)},
                      {"unseen_model", m.unseen_model},
                      {"suspect_label", m.suspect_label}});
    }
    return print_document(json);
  }
  // Errors in percent; the columns of four published predictors.
  TextTable table(
      {"GPU", "<graph", "<label", "ms", "ours", "heur.", "NeuSight", "Habitat", "Li", "roofl."});
  for (const GraphRow& row : *rows) {
    const MeasuredGraph& m = *row.measured;
    table.row({row.gpu, m.graph, m.suspect_label ? "suspect" : "",
               fmt::format("{:.0f}", m.measured_ms), error_cell(row.ours_ms, m.measured_ms),
               error_cell(row.heuristic_ms, m.measured_ms),
               error_cell(m.neusight_ms, m.measured_ms), error_cell(m.habitat_ms, m.measured_ms),
               error_cell(m.li_ms, m.measured_ms), error_cell(m.roofline_ms, m.measured_ms)});
  }
  TextTable means({"mean absolute error, option none", "rows", "ours", "heuristic", "NeuSight",
                   "Habitat", "Li et al.", "roofline"});
  const auto add = [&](const std::string& name, const GraphErrors& e) {
    const auto cell = [](double x) { return std::isfinite(x) ? percent(x) : std::string(); };
    means.row({name, std::to_string(e.rows), percent(e.mean(e.ours)), percent(e.mean(e.heuristic)),
               cell(e.mean(e.neusight)), cell(e.published_mean(e.habitat)),
               cell(e.published_mean(e.li)), cell(e.published_mean(e.roofline))});
  };
  for (const auto& [name, errors] : by_device) add(name, errors);
  for (const auto& [name, errors] : by_vendor) add("all of " + name, errors);
  if (others.rows) add("other options (fusion, 4 GPUs)", others);
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
