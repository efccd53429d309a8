#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernel_table.hpp"

/// Latency of whole models from NeuSight's operator graphs: how often each kernel runs, and which
/// overlap.
namespace perfmodel {

/// Ways to add up a graph's kernels to its latency. Stages: fw; training has bw and acc as well
/// (acc adds up weight gradients). n runs of a node count n times.
enum class GraphAggregate : std::uint8_t {
  kSum,       ///< sum of repeat * time
  kSumFused,  ///< the same; rows of a fused node are one kernel
  /// Data parallel: fw + max(compute, end of the last all-reduce). The backward pass runs from the
  /// last node to the first; an asynchronous all-reduce starts when the computation before it is
  /// done and the previous one has ended.
  kOverlapDp,
  /// Four stages with a quarter of the layers each; nodes before the layers join the first, nodes
  /// after them the last: GPipe's schedule of the micro-batches that the option names, forward,
  /// then backward. One micro-batch: every stage once, three transfers between them.
  kPipeline,
};

/// One row of `graphs.csv`.
struct GraphSpec {
  std::string graph = {}, model = {}, phase = {}, option = {};
  int seq = 0, batch = 0, num_layers = 0;
  bool training = false;
  int micro_batches = 1;  ///< `pp4_N`
  GraphAggregate aggregate = GraphAggregate::kSum;
  int line = 0;
};
Result<std::vector<GraphSpec>> read_graph_specs(const std::filesystem::path& file);

/// One row of `e2e_train_gpus.csv`. Unpublished predictions are NaN.
struct MeasuredGraph {
  int gpu = -1;  ///< index into `MeasuredGraphs::gpus`
  std::string graph, model, phase, option;
  bool unseen_model = false;   ///< `ood_model`
  bool suspect_label = false;  ///< see the data's README
  double measured_ms = 0;
  double neusight_ms = std::numeric_limits<double>::quiet_NaN(),
         habitat_ms = std::numeric_limits<double>::quiet_NaN(),
         roofline_ms = std::numeric_limits<double>::quiet_NaN(),
         li_ms = std::numeric_limits<double>::quiet_NaN();
  int line = 0;
};
struct MeasuredGraphs {
  std::vector<Gpu> gpus;
  std::vector<MeasuredGraph> rows;
};
Result<MeasuredGraphs> read_measured_graphs(const std::filesystem::path& file,
                                            const std::filesystem::path& gpu_folder);

struct GraphLatency {
  Microseconds total{0};
  Microseconds forward{0};
  Microseconds backward{0};       ///< with the exposed part of its communication
  Microseconds communication{0};  ///< time on the links, exposed or not
};

/// Time of one kernel. `work` is the row's work on that GPU. Kernels of a model follow each other
/// without the host: no cost of launches may be in it.
using RowPricing =
    std::function<Microseconds(const KernelRow& row, const KernelWork& work, const Gpu& gpu)>;

/// Share of the links' one-way bandwidth that NeuSight's paper grants collectives; a ring
/// all-reduce over four GPUs moves three times the buffer there, a send moves it once.
inline constexpr double kNeuSightLinkEfficiency = 0.72;

/// One latency per graph, in order. `opgraphs` are rows of `opgraphs.csv.gz`; collectives and
/// transfers are priced by the rule above, all else by `price`. Errors: a graph without rows, a
/// graph that communicates on a GPU without links.
Result<std::vector<GraphLatency>> graph_latencies(const KernelTable& opgraphs,
                                                  std::span<const GraphSpec> graphs, const Gpu& gpu,
                                                  const RowPricing& price);

}  // namespace perfmodel
