#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "tables/graph_latency.hpp"

/// Errors of predicted latencies of whole models.
namespace perfmodel::training {

struct JudgedGraph {
  MeasuredGraph measured;
  std::string gpu, vendor;
  double predicted_ms = 0, heuristic_ms = 0;
};
/// The fields of the JSON of a graph, and errors of the heuristic models and of published
/// predictors.
extern const ResultFields<JudgedGraph> kJudgedGraphColumns;

/// Mean absolute errors of the graphs of one GPU or vendor, or of all; errors of published
/// predictors are no number where they published none.
struct GraphErrors {
  std::string name;
  std::size_t rows = 0;
  double learned = 0, heuristic = 0, neusight = 0, roofline = 0, habitat = 0, li = 0;
};
extern const ResultFields<GraphErrors> kGraphErrorFields;
GraphErrors errors_of(const std::string& name, const std::vector<const JudgedGraph*>& graphs);

struct JudgedGraphs {
  std::vector<JudgedGraph> graphs;
  double kernel_gap_us = 0;
  GraphErrors all, other_options;                 ///< graphs of option "none", and of others
  std::vector<GraphErrors> by_device, by_vendor;  ///< by name; of option "none"
};

struct GraphFiles {
  std::filesystem::path opgraphs, graphs, measured;
};
/// Judges the models of that name or file. `kernel_gap_us` passes between a kernel and the next one
/// of its stream. Errors: unreadable files, graphs without a price; a measured graph that is in no
/// file.
Result<JudgedGraphs> judge_graphs(const GraphFiles& files, const std::string& models,
                                  double kernel_gap_us);

/// The members of a document of `eval --graphs`.
OrderedJson judged_graphs_json(const JudgedGraphs& judged);

}  // namespace perfmodel::training
