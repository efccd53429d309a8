#include "graph_latency.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "base/each_name.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {
namespace {

constexpr int kStages = 4;

// ----------------------------------------------------------------------------------------- readers

/// Cells of one row by column name; the first problem stays.
class Row {
 public:
  explicit Row(const CsvFile& csv, std::optional<Error>& error) : csv_(csv), error_(error) {}

  std::string_view text(std::string_view name) {
    const int column = needed(name);
    if (csv_.cell(column).empty()) reject(column, "a name");
    return csv_.cell(column);
  }
  int count(std::string_view name) {
    const int column = needed(name);
    const auto value = parse_count(csv_.cell(column));
    if (!value || *value > 1'000'000'000) reject(column, "an integer above 0");
    return static_cast<int>(value.value_or(1));
  }
  double positive(std::string_view name) {
    const int column = needed(name);
    const auto value = parse_double(csv_.cell(column));
    if (!value || !(*value > 0) || !std::isfinite(*value)) reject(column, "a number above 0");
    return value.value_or(1);
  }
  double positive_or_nan(std::string_view name) {
    const int column = csv_.column(name);
    return csv_.cell(column).empty() ? std::numeric_limits<double>::quiet_NaN() : positive(name);
  }
  bool flag(std::string_view name) {
    const int column = csv_.column(name);
    const std::string_view value = csv_.cell(column);
    if (!value.empty() && value != "0" && value != "1") reject(column, "0 or 1");
    return value == "1";
  }
  void reject(int column, std::string_view wanted) {
    if (column >= 0 && !error_) error_ = csv_.expected(column, wanted);
  }
  void reject(std::string_view name, std::string_view wanted) { reject(csv_.column(name), wanted); }

 private:
  int needed(std::string_view name) {
    const int column = csv_.column(name);
    if (column < 0 && !error_) error_ = csv_.missing_column(name, "");
    return column;
  }

  const CsvFile& csv_;
  std::optional<Error>& error_;
};

template <class Read>
Result<void> for_each_row(const std::filesystem::path& file, Read read) {
  PERFMODEL_TRY(csv, CsvFile::open(file));
  std::optional<Error> error;
  bool any = false;
  while (csv->next()) {
    Row row(*csv, error);
    read(*csv, row, error);
    if (error) return Unexpected{std::move(*error)};
    any = true;
  }
  if (csv->error()) return Unexpected{*csv->error()};
  if (!any) {
    return fail(ErrorCode::kFormat, "expected rows, found only a header", file);
  }
  return {};
}

bool is_training(std::string_view phase, Row& row) {
  if (phase != "inf" && phase != "train") row.reject("phase", "inf or train");
  return phase == "train";
}

// --------------------------------------------------------------------------------------- latencies

enum Stage : std::uint8_t { kForward, kBackward };

/// Microseconds of one node, run once.
struct NodeTimes {
  int index = 0;
  double repeat = 1;
  std::array<double, 2> compute_us{};   // by stage; the backward has the gradients' adding up
  std::array<double, 2> transfer_us{};  // blocking
  double async_us = 0;                  // all-reduce during the backward pass
};

bool is_transfer(const KernelRow& row) { return row.work.family == KernelFamily::kCollective; }

class Graph {
 public:
  Graph(const KernelTable& table, const std::vector<std::size_t>& rows, const GraphSpec& spec,
        const Gpu& gpu, const RowPricing& price)
      : spec_(spec) {
    const double link_bytes_per_us = kNeuSightLinkEfficiency * gpu.link_bandwidth.value / 2 * 1e-6;
    for (const std::size_t index : rows) {
      const KernelRow& row = table.rows[index];
      const Stage stage = row.stage == "fw" ? kForward : kBackward;
      if (row.is_free || (stage == kBackward && !spec.training)) continue;
      NodeTimes& node = node_of(row);
      if (!is_transfer(row)) {
        node.compute_us[stage] += price(row, for_gpu(row.work, gpu), gpu).count();
        continue;
      }
      transfers_ = true;
      const std::string& op = table.ops[row.op];
      const double moved = op == "sendrecv" ? row.transfer_bytes : 3 * row.transfer_bytes;
      const double us = moved / link_bytes_per_us;
      if (op == "allreduce_async" && spec.aggregate == GraphAggregate::kOverlapDp) {
        node.async_us += us;
      } else {
        node.transfer_us[stage] += us;
      }
    }
    std::ranges::stable_sort(nodes_, {}, &NodeTimes::index);
  }

  bool transfers() const { return transfers_; }

  GraphLatency latency() const {
    GraphLatency result;
    double forward = 0, backward = 0, links = 0;
    if (spec_.aggregate == GraphAggregate::kPipeline) {
      forward = pipeline(kForward, links);
      if (spec_.training) backward = pipeline(kBackward, links);
    } else {
      for (const NodeTimes& node : nodes_) {
        forward += node.repeat * (node.compute_us[kForward] + node.transfer_us[kForward]);
        backward += node.repeat * (node.compute_us[kBackward] + node.transfer_us[kBackward]);
        links += node.repeat *
                 (node.transfer_us[kForward] + node.transfer_us[kBackward] + node.async_us);
      }
      if (spec_.aggregate == GraphAggregate::kOverlapDp) backward = overlapped_backward();
    }
    result.forward = Microseconds{forward};
    result.backward = Microseconds{backward};
    result.communication = Microseconds{links};
    result.total = result.forward + result.backward;
    return result;
  }

 private:
  NodeTimes& node_of(const KernelRow& row) {
    const auto [at, is_new] = positions_.emplace(row.node_index, nodes_.size());
    if (is_new) nodes_.push_back({.index = row.node_index, .repeat = row.repeat});
    return nodes_[at->second];
  }

  /// Layers are runs of nodes with one `repeat` above 1; walked back they come `repeat` times.
  double overlapped_backward() const {
    double compute = 0, links = 0;
    const auto run = [&](const NodeTimes& node) {
      compute += node.compute_us[kBackward] + node.transfer_us[kBackward];
      if (node.async_us > 0) links = std::max(links, compute) + node.async_us;
    };
    for (std::size_t end = nodes_.size(); end > 0;) {
      const double repeat = nodes_[end - 1].repeat;
      std::size_t begin = end - 1;
      while (repeat > 1 && begin > 0 && nodes_[begin - 1].repeat == repeat) --begin;
      for (int i = 0; i < static_cast<int>(repeat); ++i) {
        for (std::size_t node = end; node > begin; --node) run(nodes_[node - 1]);
      }
      end = begin;
    }
    return std::max(compute, links);
  }

  /// Stages s = 0 .. 3 with times t_s, N micro-batches: sum t_s + 3 transfers + (N - 1) max t_s.
  double pipeline(Stage stage, double& links) const {
    double first = 0, layers = 0, last = 0, transfer = 0;
    bool behind = false;
    for (const NodeTimes& node : nodes_) {
      transfer += node.transfer_us[stage];
      if (node.repeat > 1) {
        layers += node.repeat / kStages * node.compute_us[stage];
        behind = true;
      } else {
        (behind ? last : first) += node.compute_us[stage];
      }
    }
    const double fill = first + kStages * layers + last + (kStages - 1) * transfer;
    links += (kStages - 1) * transfer * spec_.micro_batches;
    return fill + (spec_.micro_batches - 1) * (layers + std::max({first, last, transfer}));
  }

  const GraphSpec& spec_;
  std::vector<NodeTimes> nodes_;
  std::unordered_map<int, std::size_t> positions_;
  bool transfers_ = false;
};

}  // namespace

Result<std::vector<GraphSpec>> read_graph_specs(const std::filesystem::path& file) {
  std::vector<GraphSpec> specs;
  const auto read = [&](const CsvFile& csv, Row& row, std::optional<Error>& error) {
    GraphSpec& spec = specs.emplace_back();
    spec.line = csv.line();
    PERFMODEL_READ(spec, row.text, graph, model, phase, option);
    PERFMODEL_READ(spec, row.count, seq, batch);
    spec.num_layers = row.count("n_layer");
    spec.training = is_training(spec.phase, row);
    const std::string_view aggregate = row.text("aggregate");
    if (error) return;
    if (aggregate == "sum") {
      spec.aggregate = GraphAggregate::kSum;
    } else if (aggregate == "sum_fused") {
      spec.aggregate = GraphAggregate::kSumFused;
    } else if (aggregate == "overlap_dp") {
      spec.aggregate = GraphAggregate::kOverlapDp;
    } else if (aggregate == "pipeline") {
      spec.aggregate = GraphAggregate::kPipeline;
      constexpr std::string_view kPrefix = "pp4_";
      const bool named = spec.option.starts_with(kPrefix);
      const std::int64_t count =
          named ? parse_count(std::string_view(spec.option).substr(kPrefix.size())).value_or(0) : 0;
      if (count < 1 || count > 1'000'000) {
        return row.reject("option", "pp4_N with N micro-batches");
      }
      spec.micro_batches = static_cast<int>(count);
    } else {
      row.reject("aggregate", "sum, sum_fused, overlap_dp or pipeline");
    }
  };
  PERFMODEL_TRY_TO(for_each_row(file, read));
  return specs;
}

Result<MeasuredGraphs> read_measured_graphs(const std::filesystem::path& file,
                                            const std::filesystem::path& gpu_folder) {
  MeasuredGraphs result;
  std::unordered_map<std::string, int> gpus;
  const auto read = [&](const CsvFile& csv, Row& row, std::optional<Error>& error) {
    MeasuredGraph& graph = result.rows.emplace_back();
    graph.line = csv.line();
    const std::string device(row.text("device"));
    PERFMODEL_READ(graph, row.text, graph, model, phase, option);
    is_training(graph.phase, row);
    graph.unseen_model = row.flag("ood_model");
    graph.suspect_label = row.flag("suspect_label");
    graph.measured_ms = row.positive("measured_ms");
    PERFMODEL_READ(graph, row.positive_or_nan, neusight_ms, habitat_ms, roofline_ms, li_ms);
    if (error) return;
    const auto [known, is_new] = gpus.emplace(device, static_cast<int>(result.gpus.size()));
    if (is_new) {
      auto gpu = find_known_gpu(device, gpu_folder);
      if (!gpu) {
        error = gpu.error();
        if (gpu.error().code == ErrorCode::kUnknownName) {
          error = csv.at_cell(csv.column("device"), gpu.error().message);
          error->code = ErrorCode::kUnknownName;
        }
        return;
      }
      result.gpus.push_back(std::move(*gpu));
    }
    graph.gpu = known->second;
  };
  PERFMODEL_TRY_TO(for_each_row(file, read));
  return result;
}

Result<std::vector<GraphLatency>> graph_latencies(const KernelTable& opgraphs,
                                                  std::span<const GraphSpec> graphs, const Gpu& gpu,
                                                  const RowPricing& price) {
  std::vector<std::vector<std::size_t>> rows(opgraphs.graphs.size());
  for (std::size_t i = 0; i < opgraphs.rows.size(); ++i) {
    const int graph = opgraphs.rows[i].graph;
    if (graph >= 0) rows[graph].push_back(i);
  }
  std::vector<GraphLatency> result;
  for (const GraphSpec& spec : graphs) {
    const auto found = std::ranges::find(opgraphs.graphs, spec.graph);
    if (found == opgraphs.graphs.end()) {
      return decline("expected rows of graph " + spec.graph + ", found none", opgraphs.file);
    }
    const Graph graph(opgraphs, rows[found - opgraphs.graphs.begin()], spec, gpu, price);
    if (graph.transfers() && !(gpu.link_bandwidth.value > 0)) {
      return decline("expected a GPU with links for graph " + spec.graph +
                     ", which communicates, found " + gpu.name);
    }
    result.push_back(graph.latency());
  }
  return result;
}

}  // namespace perfmodel
