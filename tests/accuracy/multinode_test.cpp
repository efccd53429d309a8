// All-reduces between machines, as printed logs of nccl-tests and rccl-tests have them. The bytes
// in flight per GPU and the latencies of RoCE and EFA were fitted to these very rows; beside them
// stands a line, latency + bytes / bandwidth, fitted to all other runs.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "accuracy_support.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel {
namespace multinode_test {

constexpr double kMib = 1 << 20;

struct Row {
  std::string run, gpu;
  int gpus_per_node = 0;
  double bytes = 0, us = 0;
  NetworkFacts network;

  /// Bytes through a node's NICs by their rate [us].
  double line_us() const { return bytes / network.nics / network.nic_bandwidth.value * 1e6; }
};

/// Cells of a line; quoted ones may hold commas.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
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

std::vector<Row> measured_rows() {
  std::ifstream file(*accuracy::public_data() / "multinode" / "collectives.csv");
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const auto cell = cells_of(line);
    rows.push_back({.run = cell[0],
                    .gpu = cell[1],
                    .gpus_per_node = std::stoi(cell[3]),
                    .bytes = std::stod(cell[5]),
                    .us = std::stod(cell[6]),
                    .network = {.nodes = std::stoi(cell[2]),
                                .nics = std::stoi(cell[8]),
                                .nic_bandwidth = {std::stod(cell[9]) * 1e9},
                                .network = cell[10]}});
  }
  return rows;
}

double predicted_us(const Row& row) {
  const Topology* usual = TopologyCatalog::builtin().default_of(row.gpu);
  const auto topology = with_network(*usual, row.network);
  EXPECT_TRUE(topology.has_value()) << row.run;
  const auto time = collective_time(*topology, {.bytes = {row.bytes},
                                                .ranks = row.network.nodes * row.gpus_per_node,
                                                .nodes = row.network.nodes});
  EXPECT_TRUE(time.has_value()) << row.run;
  return time->time.count();
}

/// Least squares on relative error of all runs but one: t = alpha + beta line_us.
std::pair<double, double> line_without(const std::string& run, const std::vector<Row>& rows) {
  double a = 0, b = 0, c = 0, x = 0, y = 0;  // normal equations
  for (const Row& row : rows) {
    if (row.run == run) continue;
    const double one = 1 / row.us, size = row.line_us() / row.us;
    a += one * one;
    b += one * size;
    c += size * size;
    x += one;
    y += size;
  }
  const double determinant = a * c - b * b;
  return {(c * x - b * y) / determinant, (a * y - b * x) / determinant};
}

struct Mean {
  double sum = 0;
  int rows = 0;
  double value() const { return rows ? sum / rows : 0; }
};
/// Mean |error| in percent below 1 MiB, to 64 MiB, above.
struct Errors {
  Mean classes[3];
  void add(double bytes, double percent) {
    Mean& mean = classes[bytes < kMib ? 0 : bytes <= 64 * kMib ? 1 : 2];
    mean.sum += std::abs(percent);
    ++mean.rows;
  }
  double from_1_mib() const {
    return (classes[1].sum + classes[2].sum) / (classes[1].rows + classes[2].rows);
  }
};

void print(const std::string& name, const Errors& model, const Errors& line) {
  std::printf("%-16s", name.c_str());
  for (const Errors* errors : {&model, &line}) {
    std::printf(" |");
    for (const Mean& mean : errors->classes) std::printf(" %6.1f", mean.value());
    std::printf(" %6.1f", errors->from_1_mib());
  }
  std::printf("\n");
}

TEST(Multinode, AllReducesOfPrintedLogs) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::vector<Row> rows = measured_rows();
  ASSERT_EQ(rows.size(), 158U);
  std::map<std::string, std::pair<Errors, Errors>> runs;
  Errors model, line;
  for (const Row& row : rows) {
    const auto [alpha, beta] = line_without(row.run, rows);
    const double off = accuracy::error_percent(predicted_us(row), row.us);
    const double line_off = accuracy::error_percent(alpha + beta * row.line_us(), row.us);
    auto& [own, own_line] = runs[row.run];
    for (Errors* errors : {&own, &model}) errors->add(row.bytes, off);
    for (Errors* errors : {&own_line, &line}) errors->add(row.bytes, line_off);
  }
  std::printf("mean |error| %%   | < 1 MiB, to 64 MiB, above, from 1 MiB | a line by other runs\n");
  for (const auto& [name, errors] : runs) print(name, errors.first, errors.second);
  print("all", model, line);
  EXPECT_LE(model.from_1_mib(), 7.5);  // 7.3; 6.9 without the run of NCCL 2.14
  EXPECT_LE(model.classes[0].value(), 12);
  EXPECT_LE(model.classes[1].value(), 10.5);
  EXPECT_LE(model.classes[2].value(), 5);
  // The model was fitted to these rows, a line is not: the ratio flatters the model.
  EXPECT_LE(model.from_1_mib(), 0.5 * line.from_1_mib());
}

}  // namespace multinode_test
}  // namespace perfmodel
