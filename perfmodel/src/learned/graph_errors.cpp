#include "graph_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/file_name.hpp"
#include "model_errors.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel::training {
namespace {

double error_of(double predicted, double measured) { return predicted / measured - 1; }

auto error_of_published(double MeasuredGraph::*predicted_ms) {
  return [predicted_ms](const JudgedGraph& graph) {
    return error_of(graph.measured.*predicted_ms, graph.measured.measured_ms);
  };
}
auto error_of_priced(double JudgedGraph::*predicted_ms) {
  return [predicted_ms](const JudgedGraph& graph) {
    return error_of(graph.*predicted_ms, graph.measured.measured_ms);
  };
}
auto as_measured(auto member) {
  return [member](const JudgedGraph& graph) { return graph.measured.*member; };
}

// In percent; empty if no prediction was published.
std::string error_text(double error) {
  return std::isfinite(error) ? fmt::format("{:+.1f}", 100 * error) : "";
}
std::string whole_number(double number) { return fmt::format("{:.0f}", number); }
std::string plain_rows(std::size_t rows) { return std::to_string(rows); }
std::string label_text(bool is_suspect) { return is_suspect ? "suspect" : ""; }
std::string published_share(double share) { return std::isfinite(share) ? percent(share) : ""; }

const ResultFields<JudgedGraph> kJudgedGraphFields = {
    {"gpu", &JudgedGraph::gpu, "GPU"},
    {"graph", as_measured(&MeasuredGraph::graph), "<graph"},
    {"option", as_measured(&MeasuredGraph::option)},
    {"measured_ms", as_measured(&MeasuredGraph::measured_ms), Digits::kAll, "ms", whole_number},
    {"predicted_ms", &JudgedGraph::predicted_ms, Digits::kAll},
    {"heuristic_ms", &JudgedGraph::heuristic_ms, Digits::kAll},
    {"error", error_of_priced(&JudgedGraph::predicted_ms), Digits::kAll, "ours", error_text},
    {"unseen_model", as_measured(&MeasuredGraph::unseen_model)},
    {"suspect_label", as_measured(&MeasuredGraph::suspect_label), "<label", label_text},
};

// In the order of their rows.
Result<std::vector<JudgedGraph>> priced_graphs(const GraphFiles& files,
                                               const MeasuredGraphs& measured,
                                               const ChosenKernelModels& models,
                                               double kernel_gap_us) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(table, read_kernel_table(files.opgraphs, {.gpu_folder = *data / "gpus"}));
  PERFMODEL_TRY(specs, read_graph_specs(files.graphs));
  std::vector<JudgedGraph> graphs;
  for (std::size_t gpu = 0; gpu < measured.gpus.size(); ++gpu) {
    std::vector<GraphSpec> wanted;  // only what was measured there: some graphs need links
    for (const GraphSpec& spec : *specs) {
      const bool is_measured = std::ranges::any_of(measured.rows, [&](const MeasuredGraph& row) {
        return row.gpu == static_cast<int>(gpu) && row.graph == spec.graph;
      });
      if (is_measured) wanted.push_back(spec);
    }
    const Microseconds gap{kernel_gap_us};
    const auto price = [&](const KernelModels& kernel_models) {
      return graph_latencies(*table, wanted, measured.gpus[gpu],
                             [&](const KernelRow&, const KernelWork& work, const Gpu& device) {
                               return kernel_models.price(work, device).time + gap;
                             });
    };
    PERFMODEL_TRY(learned, price(models.models));
    PERFMODEL_TRY(heuristic, price(KernelModels::heuristic()));
    for (const MeasuredGraph& row : measured.rows) {
      if (row.gpu != static_cast<int>(gpu)) continue;
      const auto at = std::ranges::find(wanted, row.graph, &GraphSpec::graph);
      if (at == wanted.end()) {
        return Unexpected{Error{.code = ErrorCode::kFormat,
                                .message = "expected a graph of " + file_name(files.graphs) +
                                           ", found \"" + row.graph + "\"",
                                .file = files.measured,
                                .json_pointer = "graph",
                                .line = row.line}};
      }
      const auto i = static_cast<std::size_t>(at - wanted.begin());
      graphs.push_back({row, measured.gpus[gpu].name, measured.gpus[gpu].vendor,
                        (*learned)[i].total.count() / 1000, (*heuristic)[i].total.count() / 1000});
    }
  }
  PERFMODEL_TRY_TO(models.check());
  return graphs;
}

using GraphsByName = std::map<std::string, std::vector<const JudgedGraph*>>;

std::vector<GraphErrors> errors_by_name(const GraphsByName& groups) {
  std::vector<GraphErrors> errors;
  for (const auto& [name, graphs] : groups) errors.push_back(errors_of(name, graphs));
  return errors;
}

}  // namespace

const ResultFields<JudgedGraph> kJudgedGraphColumns = joined_fields<JudgedGraph>(
    {kJudgedGraphFields,
     {{"heuristic_error", error_of_priced(&JudgedGraph::heuristic_ms), "heur.", error_text},
      {"neusight_error", error_of_published(&MeasuredGraph::neusight_ms), "NeuSight", error_text},
      {"habitat_error", error_of_published(&MeasuredGraph::habitat_ms), "Habitat", error_text},
      {"li_error", error_of_published(&MeasuredGraph::li_ms), "Li", error_text},
      {"roofline_error", error_of_published(&MeasuredGraph::roofline_ms), "roofl.", error_text}}});

const ResultFields<GraphErrors> kGraphErrorFields = {
    {"name", &GraphErrors::name, "mean absolute error, option none"},
    {"rows", &GraphErrors::rows, "rows", plain_rows},
    {"mape", &GraphErrors::learned, Digits::kAll, "ours", share_text},
    {"heuristic_mape", &GraphErrors::heuristic, Digits::kAll, "heuristic", share_text},
    {"neusight_mape", &GraphErrors::neusight, Digits::kThreeDecimals, "NeuSight", published_share},
    {"roofline_mape", &GraphErrors::roofline, Digits::kThreeDecimals, "roofline", published_share},
    {"habitat_mape", &GraphErrors::habitat, Digits::kThreeDecimals, "Habitat", published_share},
    {"li_mape", &GraphErrors::li, Digits::kThreeDecimals, "Li et al.", published_share},
};

GraphErrors errors_of(const std::string& name, const std::vector<const JudgedGraph*>& graphs) {
  GraphErrors sums{.name = name, .rows = graphs.size()};
  std::size_t published = 0;
  for (const JudgedGraph* graph : graphs) {
    const MeasuredGraph& row = graph->measured;
    const auto error = [&](double predicted_ms) {
      return std::abs(error_of(predicted_ms, row.measured_ms));
    };
    sums.learned += error(graph->predicted_ms);
    sums.heuristic += error(graph->heuristic_ms);
    sums.neusight += error(row.neusight_ms);
    if (!std::isfinite(row.roofline_ms)) continue;
    ++published;
    sums.roofline += error(row.roofline_ms);
    sums.habitat += error(row.habitat_ms);
    sums.li += error(row.li_ms);
  }
  if (sums.rows > 0) {
    for (double* sum : {&sums.learned, &sums.heuristic, &sums.neusight}) {
      *sum /= static_cast<double>(sums.rows);
    }
  }
  for (double* sum : {&sums.roofline, &sums.habitat, &sums.li}) {
    *sum = published ? *sum / static_cast<double>(published)
                     : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

Result<JudgedGraphs> judge_graphs(const GraphFiles& files, const std::string& models,
                                  double kernel_gap_us) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(chosen, choose_kernel_models(models));
  PERFMODEL_TRY(measured, read_measured_graphs(files.measured, *data / "gpus"));
  PERFMODEL_TRY(graphs, priced_graphs(files, *measured, *chosen, kernel_gap_us));
  JudgedGraphs judged{.graphs = std::move(*graphs), .kernel_gap_us = kernel_gap_us};
  GraphsByName by_device, by_vendor;
  std::vector<const JudgedGraph*> all, others;
  for (const JudgedGraph& graph : judged.graphs) {
    if (graph.measured.option == "none") {
      by_device[graph.gpu].push_back(&graph);
      by_vendor[graph.vendor].push_back(&graph);
      all.push_back(&graph);
    } else {
      others.push_back(&graph);
    }
  }
  judged.all = errors_of("all", all);
  judged.other_options = errors_of("other options (fusion, 4 GPUs)", others);
  judged.by_device = errors_by_name(by_device);
  judged.by_vendor = errors_by_name(by_vendor);
  return judged;
}

OrderedJson judged_graphs_json(const JudgedGraphs& judged) {
  const auto members = [](const GraphErrors& errors) {
    OrderedJson json = json_object(errors, kGraphErrorFields);
    json.erase("name");
    return json;
  };
  OrderedJson json = members(judged.all);
  json["kernel_gap_us"] = judged.kernel_gap_us;
  json["other_options"] = members(judged.other_options);
  for (const GraphErrors& of : judged.by_device) json["by_device"][of.name] = members(of);
  for (const GraphErrors& of : judged.by_vendor) json["by_vendor"][of.name] = members(of);
  json["graphs"] = json_list(judged.graphs, kJudgedGraphFields);
  return json;
}

}  // namespace perfmodel::training
