#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accuracy_support.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

/// Public recommender models and rows about them (public/sharding).
namespace perfmodel::accuracy {

using Columns = std::vector<std::string>;

/// Cells may be quoted; quotes hold commas only.
inline Columns split_csv_line(const std::string& line) {
  Columns cells(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

struct CsvRows {
  Columns header;
  std::vector<Columns> rows;
  const std::string& at(std::size_t row, const std::string& column) const {
    const auto found = std::find(header.begin(), header.end(), column);
    return rows[row][static_cast<std::size_t>(found - header.begin())];
  }
};

inline CsvRows read_csv(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  CsvRows csv{split_csv_line(line), {}};
  while (std::getline(stream, line)) csv.rows.push_back(split_csv_line(line));
  return csv;
}

/// The tables of a model of models.json, its dense part where it has the keys of the Criteo models.
inline sharding::ShardingStudy public_model(const std::string& name) {
  std::ifstream stream(*public_data() / "sharding" / "models.json");
  const auto model = nlohmann::json::parse(stream).at(name);
  sharding::ShardingStudy study;
  study.name = name;
  for (const auto& entry : model.at("tables")) {
    for (int i = 0; i < entry.at("count").get<int>(); ++i) {
      sharding::ShardedTable table;
      table.name = "t" + std::to_string(study.tables.size());
      table.rows = entry.at("rows");
      table.dim = entry.at("dim");
      table.features.clear();
      for (double pooling : entry.at("hotness")) {
        table.features.push_back({.pooling_factor = pooling});
      }
      study.tables.push_back(table);
    }
  }
  const auto& dense = model.at("dense");
  sharding::DensePart part;
  if (dense.contains("bottom_mlp")) {
    part.bottom_mlp = dense.at("bottom_mlp").get<std::vector<std::int64_t>>();
    part.top_mlp = dense.at("top_mlp").get<std::vector<std::int64_t>>();
  } else {
    part.top_mlp = dense.at("mlp").get<std::vector<std::int64_t>>();
    part.interaction = sharding::DensePart::Interaction::kAveragePool;
    const std::string text = dense.at("interaction");
    const auto stride = text.find("stride ");
    part.pool_stride = stride == std::string::npos ? 1 : std::stoi(text.substr(stride + 7));
  }
  if (name.find("dcnv2") != std::string::npos) {
    part.interaction = sharding::DensePart::Interaction::kLowRankCross;
  }
  study.dense = part;
  return study;
}

}  // namespace perfmodel::accuracy
