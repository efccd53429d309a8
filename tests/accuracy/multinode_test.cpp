// All-reduces between machines, as printed logs of nccl-tests and rccl-tests have them. The bytes
// in flight per GPU and the latencies of RoCE and EFA were fitted to these very rows. For
// comparison, the test prints the model with bytes in flight fitted to all other runs, and a line,
// latency + bytes / bandwidth, fitted to these rows. The latency of RoCE and of each EFA comes from
// one run.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
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

Topology topology_of(const Row& row) {
  const auto topology = with_network(*TopologyCatalog::builtin().default_of(row.gpu), row.network);
  EXPECT_TRUE(topology.has_value()) << row.run;
  return *topology;
}

double predicted_us(const Row& row, Bytes in_flight = Topology::Nic{}.in_flight) {
  Topology topology = topology_of(row);
  topology.nic->in_flight = in_flight;
  const auto time = collective_time(topology, {.bytes = {row.bytes},
                                               .ranks = row.network.nodes * row.gpus_per_node,
                                               .nodes = row.network.nodes});
  EXPECT_TRUE(time.has_value()) << row.run;
  return time->time.count();
}

/// Bytes in flight with the least mean |log error| from 1 MiB on over all runs but one.
Bytes in_flight_without(const std::string& run, const std::vector<Row>& rows) {
  double least = std::numeric_limits<double>::infinity(), best = 0;
  for (double bytes = 1e6; bytes < 3e7; bytes *= 1.06) {
    double sum = 0;
    for (const Row& row : rows) {
      if (row.run == run || row.bytes < kMib) continue;
      sum += std::abs(std::log(predicted_us(row, {bytes}) / row.us));
    }
    if (sum < least) least = sum, best = bytes;
  }
  return {best};
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

/// In sample, with the run left out, a line by the other runs.
struct Columns {
  Errors model, left_out, line;
};

void print(const std::string& name, const Columns& columns) {
  std::printf("%-16s", name.c_str());
  for (const Errors* errors : {&columns.model, &columns.left_out, &columns.line}) {
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
  std::map<std::string, Columns> runs;
  std::map<std::string, Bytes> in_flight;
  for (const Row& row : rows) in_flight.try_emplace(row.run);
  for (auto& [run, bytes] : in_flight) bytes = in_flight_without(run, rows);
  Columns all;
  for (const Row& row : rows) {
    const auto [alpha, beta] = line_without(row.run, rows);
    for (Columns* columns : {&runs[row.run], &all}) {
      const auto off = [&](double us) { return accuracy::error_percent(us, row.us); };
      columns->model.add(row.bytes, off(predicted_us(row)));
      columns->left_out.add(row.bytes, off(predicted_us(row, in_flight[row.run])));
      columns->line.add(row.bytes, off(alpha + beta * row.line_us()));
    }
  }
  std::printf(
      "mean |error| %%   | < 1 MiB, to 64 MiB, above, from 1 MiB | run left out | a line by other "
      "runs\n");
  for (const auto& [name, columns] : runs) print(name, columns);
  print("all", all);
  for (const auto& [run, bytes] : in_flight) {
    std::printf("%.1f MB in flight without %s\n", bytes.value * 1e-6, run.c_str());
  }
  EXPECT_LE(all.model.from_1_mib(), 7);
  EXPECT_LE(all.model.classes[0].value(), 12);
  EXPECT_LE(all.model.classes[1].value(), 9.5);
  EXPECT_LE(all.model.classes[2].value(), 5);
  EXPECT_LE(all.left_out.from_1_mib(), 0.5 * all.line.from_1_mib());
}

}  // namespace multinode_test
}  // namespace perfmodel
