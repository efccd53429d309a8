#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/critical_path.hpp"
#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/detail/launch_templates.hpp"
#include "perfmodel/predictors/detail/power.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

struct PredictedKernel {
  std::string name;  ///< of the recorded kernel where a template knows it, else of the family
  KernelFamily family = KernelFamily::kSmall;
  std::int32_t stream = 0;      ///< role: 0 main compute stream
  double start_us = 0;          ///< since the start of the iteration
  double waiting_us = 0;        ///< collectives: from there until the last rank has come
  double recorded_wait_us = 0;  ///< the part of its time that a trace waited for ranks not given
  double copied_bytes = 0;      ///< of copies and sets
  Price price;
  double limited_us = 0;   ///< of its time, what the board's power limit adds; `low` is without
  KernelEnergy energy;     ///< beside what the board draws anyway
  double given_scale = 1;  ///< by what a rewrite multiplied the predicted time
  bool inferred = false;   ///< only the launch template knows of it
};

/// A call of an op that gives work to the device or waits for it.
struct PredictedCall {
  double start_us = 0, end_us = 0;  ///< since the start of the iteration, waiting included
  std::int32_t kernel = -1;         ///< into the op's kernels; -1: it only waits
  SyncKind sync = SyncKind::kNone;
};

struct PredictedOp {
  std::int64_t id = 0;    ///< node id in the graph
  std::string_view name;  ///< lives as long as the graph that was predicted
  std::int32_t thread = 0;
  std::int32_t phase = 0;                         ///< into Prediction::phases
  double start_us = 0, host_us = 0, wait_us = 0;  ///< host_us without waits, T1 before it included
  std::vector<PredictedKernel> kernels;
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
  double end_us = 0;                 ///< with `PredictOptions::keep_calls`
  std::vector<PredictedCall> calls;  ///< the same
};

/// The per-batch time of one graph and what it is made of. Times in microseconds; `ops`, `phases`
/// and sums are those of one iteration in steady state (the mean, if the graph holds several).
struct Prediction {
  double e2e_us = 0;  ///< host wall time per iteration
  /// Holds the step in nine of ten cases, as far as kernels and another host's pace make it longer
  /// or shorter (docs/kernel_models.md). Both are `e2e_us` with method lin.
  double e2e_low_us = 0, e2e_high_us = 0;
  double gpu_active_us = 0;   ///< union of all device work launched in it
  double gpu_idle_us = 0;     ///< e2e - active
  double cpu_us = 0;          ///< host busy
  double wait_us = 0;         ///< host waiting for the device
  bool device_bound = false;  ///< the host runs ahead: the step is the device's period
  bool started = false;       ///< begins at given starts of the ranks: no step before it
  double kernel_sum_us = 0;   ///< compute_kernel_us + comm_kernel_us
  double compute_kernel_us = 0, comm_kernel_us = 0;  ///< copies and sets count as compute
  std::array<double, kTerms> terms_us{};             ///< sums by term

  struct Iteration {
    std::string name;
    double e2e_us = 0, gpu_active_us = 0;
  };
  std::vector<Iteration> iterations;

  struct Phase {
    std::string label;
    double host_us = 0, wait_us = 0;
  };
  std::vector<Phase> phases;

  struct Unmodelled {
    std::string op;
    std::size_t count = 0;
    double host_us = 0;  ///< host time of the ops that hold them
  };
  struct Coverage {
    double modelled_time_fraction = 1;  ///< of host + device time not in ops with unmodelled parts
    std::vector<Unmodelled> unmodelled_ops;
    std::size_t inferred_kernels = 0;
    double inferred_kernel_us = 0;
    std::size_t traced_kernels = 0;  ///< of these, those that take the time that a trace measured
    std::size_t kernels_out_of_range = 0;  ///< outside of what their model was checked on
    /// A sentence per type that products have, or may have (TF32), and the GPU's matrix units lack.
    std::vector<std::string> lacking_units;
    std::size_t disagreements = 0;  ///< nodes where template and rule count kernels differently
    std::array<std::size_t, kTemplateLevels> nodes_by_template_level{};
    std::size_t nodes_by_rule = 0;
    /// Launch templates of this program and machine fix number and streams of kernels, not the
    /// rules.
    bool own_launches = false;
    /// The host's times are those of a recording of this program, as it was recorded: its pace is
    /// known to `kSameHosts`, else to `kOtherHosts`.
    bool own_pace = false;
    std::array<double, kKeyLevels> host_us_by_key_level{};  ///< by KeyLevel
    /// Priced kernel time of all steps by what its model was measured on (`Knowledge`).
    std::array<double, kKnowledgeLevels> kernel_us_by_knowledge{};
  } coverage;

  /// Of the device in one iteration: what it draws anyway over the step, and its kernels. Empty for
  /// a GPU without a power limit and with method lin.
  std::optional<double> energy_j;
  std::optional<double> power_w() const {  ///< mean
    if (!energy_j || !(e2e_us > 0)) return std::nullopt;
    return *energy_j / e2e_us * 1e6;
  }
  double limited_us = 0;  ///< sum over kernels, see PredictedKernel

  CriticalPath critical_path;  ///< of the reported step
  RankReport communication;    ///< waiting only of ranks predicted together
  /// One rank of a larger job, from its trace alone: what its collectives waited for other ranks
  /// when they were recorded (recorded time less the modelled transfer on the trace's GPU), and the
  /// step without that. Microseconds per step; `e2e_us` includes the waiting.
  struct RecordedWaits {
    double waiting_us = 0, step_without_us = 0;
  };
  std::optional<RecordedWaits> recorded_waits;
  std::optional<ScaledOut> scaled_out;  ///< if the options ask for several ranks
  PredictedMemory memory;

  /// GPUs of the job that this one is of, each with a batch of its own: those that the options
  /// scale out to, else the largest group of the graph's collectives.
  std::int64_t ranks = 1;
  /// Samples per step of one GPU. To find it costs as much as a prediction: a Predictor knows that
  /// of prepared graphs and that of the question, `predict` leaves it empty.
  std::optional<std::int64_t> batch;
  /// Of the whole job.
  std::optional<double> samples_per_s() const {
    if (!batch || !(e2e_us > 0)) return std::nullopt;
    return static_cast<double>(ranks) * static_cast<double>(*batch) * 1e6 / e2e_us;
  }
  std::optional<double> samples_per_s_per_gpu() const {
    const auto all = samples_per_s();
    return all ? std::optional(*all / static_cast<double>(ranks)) : std::nullopt;
  }

  /// What the critical path runs through, in order of time: ops, or their kernels.
  struct PathPoint {
    std::int32_t rank = 0;
    std::int32_t op = 0;       ///< into `ops` of that rank
    std::int32_t kernel = -1;  ///< into the op's kernels; -1: the op's host work
  };
  std::vector<PathPoint> path_points;

  /// The step on a host whose own work takes `scale` times as long.
  struct OnHost {
    double scale = 1, e2e_us = 0;
  };
  std::vector<OnHost> host_sensitivity;  ///< if the options ask for it

  /// With strategy ddp, the graph with its collectives, which `ops` are those of (`rewrite
  /// --data-parallel` writes the same); null: the graph that was given.
  std::shared_ptr<const ExecutionGraph> graph;

  double begin_us = 0;           ///< of the step, after that of the first rank to begin
  std::vector<PredictedOp> ops;  ///< in the order in which the host runs them
  std::vector<std::string> warnings;
};

struct JobPrediction {
  std::vector<Prediction> ranks;
  std::optional<JobReport> job;     ///< with several ranks
  std::vector<ChakraTrace> chakra;  ///< one per rank, of the reported step
  std::vector<std::string> warnings;
};

}  // namespace perfmodel
