#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accuracy_support.hpp"
#include "reference/parallel/topology_costs.hpp"
#include "reference/parallel/transformer_step.hpp"

/// Rows of measured training steps and the errors on them.
namespace perfmodel::parallel {

/// `cases` of a file of distributed/; null without public data.
inline nlohmann::json measured_cases(const std::string& file) {
  const auto folder = accuracy::public_data();
  if (!folder || !std::filesystem::exists(*folder / "distributed" / file)) return {};
  return nlohmann::json::parse(std::ifstream(*folder / "distributed" / file)).at("cases");
}

/// A table of them as one object per row.
inline nlohmann::json measured_rows(const std::string& file) {
  const nlohmann::json cases = measured_cases(file);
  if (cases.is_null()) return {};
  auto rows = nlohmann::json::array();
  for (const auto& values : cases.at("rows")) {
    nlohmann::json row;
    for (std::size_t i = 0; i < values.size(); ++i) {
      row[cases.at("columns")[i].get<std::string>()] = values[i];
    }
    rows.push_back(row);
  }
  return rows;
}

/// Collectives as this project prices them on a built-in topology, with another number of NICs
/// unless 0.
inline CollectiveCost costs_on(const std::string& name, int nics = 0) {
  Topology topology = TopologyCatalog::builtin().find(name).value();
  if (nics > 0) topology.nic->count = nics;
  return topology_costs(topology);
}

/// Shape and plan of a row of vTrain's tables. vTrain assumes this vocabulary.
inline DecoderShape vtrain_shape(const nlohmann::json& row) {
  return {.hidden = row["hidden"],
          .heads = row["heads"],
          .layers = row["layers"],
          .seq = row["seq"],
          .vocab = 50257};
}
inline MegatronPlan vtrain_plan(const nlohmann::json& row) {
  return {.tp = row["tp"],
          .dp = row["dp"],
          .pp = row["pp"],
          .micro_batch = row["micro_batch"],
          .global_batch = row["global_batch"]};
}

/// Data-sheet roofline of the kernels, without a host.
inline StepCosts roofline_of(StepCosts costs) {
  costs.models = &KernelModels::roofline();
  costs.host = {0, 0, 0, 0, 0, 0};
  return costs;
}

struct Errors {
  std::vector<double> signed_percent = {};
  void add(double predicted, double measured) {
    signed_percent.push_back(100 * (predicted / measured - 1));
  }
  double mape() const {
    double sum = 0;
    for (double e : signed_percent) sum += std::abs(e);
    return sum / static_cast<double>(signed_percent.size());
  }
  double bias() const {
    double sum = 0;
    for (double e : signed_percent) sum += e;
    return sum / static_cast<double>(signed_percent.size());
  }
  double quantile(double q) const {
    std::vector<double> sorted;
    for (double e : signed_percent) sorted.push_back(std::abs(e));
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
  }
  void print(const std::string& name) const {
    std::printf("%-34s %3zu rows  MAPE %5.2f %%  median %5.2f  p90 %5.2f  bias %+6.2f\n",
                name.c_str(), signed_percent.size(), mape(), quantile(0.5), quantile(0.9), bias());
  }
};

}  // namespace perfmodel::parallel
