#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "accuracy_support.hpp"

/// Rows of measured training steps and the errors on them.
namespace perfmodel::accuracy {

/// `cases` of a file of distributed/; null without public data.
inline nlohmann::json measured_cases(const std::string& file) {
  const auto folder = public_data();
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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Signed errors in percent.
struct Errors {
  std::vector<double> signed_percent = {};
  void add(double predicted, double measured) {
    signed_percent.push_back(100 * (predicted / measured - 1));
  }
  std::size_t size() const { return signed_percent.size(); }
  double mape() const {
    double sum = 0;
    for (const double e : signed_percent) sum += std::abs(e);
    return sum / static_cast<double>(size());
  }
  double bias() const {
    double sum = 0;
    for (const double e : signed_percent) sum += e;
    return sum / static_cast<double>(size());
  }
  double quantile(double q) const {
    std::vector<double> sorted;
    for (const double e : signed_percent) sorted.push_back(std::abs(e));
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
  }
  double median() const { return quantile(0.5); }
  double share_within(double percent) const {
    return static_cast<double>(std::ranges::count_if(
               signed_percent, [&](double e) { return std::abs(e) <= percent; })) /
           static_cast<double>(size());
  }
  void print(const std::string& name) const {
    std::printf(
        "%-40s %3zu rows  MAPE %5.2f %%  median %5.2f  within 15 %% %3.0f %%  bias %+6.2f\n",
        name.c_str(), size(), mape(), median(), 100 * share_within(15), bias());
  }
};

/// Weights w that minimise the sum of (x w - y)^2, by the normal equations.
inline std::vector<double> least_squares(const std::vector<std::vector<double>>& x,
                                         const std::vector<double>& y) {
  const std::size_t n = x.at(0).size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (std::size_t row = 0; row < x.size(); ++row) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] += x[row][i] * x[row][j];
      a[i][n] += x[row][i] * y[row];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    a[i][i] += 1e-9;
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < n; ++k) {
      if (std::abs(a[k][i]) > std::abs(a[pivot][i])) pivot = k;
    }
    std::swap(a[i], a[pivot]);
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double share = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[k][j] -= share * a[i][j];
    }
  }
  std::vector<double> weights(n);
  for (std::size_t i = 0; i < n; ++i) weights[i] = a[i][n] / a[i][i];
  return weights;
}

}  // namespace perfmodel::accuracy
