#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/detail/kernel_energy.hpp"
#include "perfmodel/predictors/detail/time_terms.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// Why a step takes as long as it does. Times in microseconds.
struct CriticalPath {
  struct Share {
    std::string category;  ///< "T1" ... "TX", a kernel family, "collective", ...
    double us = 0;
  };
  /// The tasks of one op name and category.
  struct Step {
    std::string op, category;
    double us = 0;                ///< on the path, gaps and latencies before its tasks included
    std::size_t count = 0;        ///< tasks on the path
    double own_us = 0;            ///< sum over its tasks in the step, on the path or not
    double slack_us = 0;          ///< least delay of one of its tasks that makes the step longer
    double step_if_free_us = -1;  ///< the step if all its tasks took no time; -1: not asked
  };
  double step_us = 0;
  std::vector<Share> shares;   ///< longest first; they add up to the step
  std::vector<Step> steps;     ///< on the path, longest first; they add up to the step
  std::vector<Step> off_path;  ///< steps off the path, most own time first
};

struct PredictedKernel {
  std::string name;  ///< the recorded kernel's if a template knows it, else its family's
  KernelFamily family = KernelFamily::kSmall;
  std::int32_t stream = 0;      ///< role: 0 main compute stream
  double start_us = 0;          ///< since the start of the iteration
  double waiting_us = 0;        ///< a collective's, from its start until the last rank arrives
  double recorded_wait_us = 0;  ///< the part of its time that a trace waited for ranks not given
  double copied_bytes = 0;      ///< moved by a copy, or set
  Price price;
  double limited_us = 0;   ///< added by the board's power limit; `price.low` is without it
  double beside_us = 0;    ///< added by collectives that run meanwhile
  KernelEnergy energy;     ///< on top of the board's idle power
  double given_scale = 1;  ///< factor that a rewrite put on the predicted time
  bool inferred = false;   ///< known from the launch template alone
};

/// A call of an op that gives work to the device or waits for it.
struct PredictedCall {
  double start_us = 0, end_us = 0;  ///< since the start of the iteration, waiting included
  std::int32_t kernel = -1;         ///< index of one of the op's kernels; -1: it only waits
  SyncKind sync = SyncKind::kNone;
};

struct PredictedOp {
  std::int64_t id = 0;    ///< node id in the graph
  std::string_view name;  ///< lives as long as the graph that was predicted
  std::int32_t thread = 0;
  std::int32_t phase = 0;                         ///< index of one of Prediction::phases
  double start_us = 0, host_us = 0, wait_us = 0;  ///< host_us: T1 included, waits not
  std::vector<PredictedKernel> kernels;
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
  double end_us = 0;                 ///< with `PredictOptions::keep_calls`
  std::vector<PredictedCall> calls;  ///< the same
};

/// The per-batch time of one graph and its parts, in microseconds. `ops`, `phases` and sums
/// describe one iteration in steady state (the mean, if the graph holds several).
struct Prediction {
  double e2e_us = 0;  ///< host wall time per iteration
  /// Nine of ten steps take between these two, given the errors of kernel prices and the pace of
  /// another host (docs/kernel_models.md). Both equal `e2e_us` with method lin.
  double e2e_low_us = 0, e2e_high_us = 0;
  double gpu_active_us = 0;   ///< union of all device work that the iteration launches
  double gpu_idle_us = 0;     ///< e2e - active
  double cpu_us = 0;          ///< host busy
  double wait_us = 0;         ///< host waiting for the device
  bool device_bound = false;  ///< the host runs ahead: the step is the device's period
  bool started = false;       ///< begins at the given starts of the ranks, with no step before it
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
    double modelled_time_fraction = 1;  ///< share of host + device time in ops modelled as a whole
    std::vector<Unmodelled> unmodelled_ops;
    std::size_t inferred_kernels = 0;
    double inferred_kernel_us = 0;
    std::size_t traced_kernels = 0;        ///< inferred kernels that keep their traced time
    std::size_t kernels_out_of_range = 0;  ///< their model was not checked on such sizes
    /// One sentence per type of product (TF32 included) that the GPU's matrix units cannot run.
    std::vector<std::string> lacking_units;
    std::size_t disagreements = 0;  ///< nodes where template and rule count kernels differently
    std::array<std::size_t, kTemplateLevels> nodes_by_template_level{};
    std::size_t nodes_by_rule = 0;
    /// Launch templates of this program and machine, not the rules, fix the number and streams of
    /// kernels.
    bool own_launches = false;
    /// The host's times come from a recording of this program, so its pace is known to
    /// `kSameHosts`; otherwise to `kOtherHosts`.
    bool own_pace = false;
    std::array<double, kKeyLevels> host_us_by_key_level{};  ///< by KeyLevel
    /// Priced kernel time of all steps, by the measurements that each price rests on.
    std::array<double, kKnowledgeLevels> kernel_us_by_knowledge{};
  } coverage;

  /// Energy of the device in one iteration: idle power over the step, and its kernels. Empty for a
  /// GPU without a power limit and with method lin.
  std::optional<double> energy_j;
  std::optional<double> power_w() const {  ///< mean
    if (!energy_j || !(e2e_us > 0)) return std::nullopt;
    return *energy_j / e2e_us * 1e6;
  }
  double limited_us = 0;  ///< sum over kernels, see PredictedKernel

  CriticalPath critical_path;  ///< in the reported step
  RankReport communication;    ///< waits are known only for ranks predicted together
  /// What parallel training costs this rank besides its collectives, in microseconds per step.
  struct ParallelCosts {
    double copies_us = 0;   ///< kernels that copy gradients and buffers for collectives
    double beside_us = 0;   ///< sum over kernels, see PredictedKernel
    double slowest_us = 0;  ///< the rank whose board needs the most power sets the pace
  } parallel;
  /// How long the collectives of one rank's trace waited for the other ranks of its job (recorded
  /// time less the modelled transfer on the trace's GPU), and the step without these waits.
  /// Microseconds per step; `e2e_us` includes the waits.
  struct RecordedWaits {
    double waiting_us = 0, step_without_us = 0;
  };
  std::optional<RecordedWaits> recorded_waits;
  std::optional<ScaledOut> scaled_out;  ///< if the options ask for several ranks
  PredictedMemory memory;

  /// GPUs of the whole job, each with its own batch: as many as the options scale out to, else the
  /// largest group of the graph's collectives.
  std::int64_t ranks = 1;
  /// Samples per step of one GPU. Finding it costs as much as a prediction, so a Predictor fills it
  /// for prepared graphs and questions with a batch; `predict` leaves it empty.
  std::optional<std::int64_t> batch;
  /// Samples per second of the whole job.
  std::optional<double> samples_per_s() const {
    if (!batch || !(e2e_us > 0)) return std::nullopt;
    return static_cast<double>(ranks) * static_cast<double>(*batch) * 1e6 / e2e_us;
  }
  std::optional<double> samples_per_s_per_gpu() const {
    const auto all = samples_per_s();
    return all ? std::optional(*all / static_cast<double>(ranks)) : std::nullopt;
  }

  /// A step of the critical path, which runs through ops and their kernels in order of time.
  struct PathPoint {
    std::int32_t rank = 0;
    std::int32_t op = 0;       ///< index of one of that rank's `ops`
    std::int32_t kernel = -1;  ///< index of one of the op's kernels; -1: the op's host work
  };
  std::vector<PathPoint> path_points;

  /// The step on a host whose own work takes `scale` times as long.
  struct OnHost {
    double scale = 1, e2e_us = 0;
  };
  std::vector<OnHost> host_sensitivity;  ///< if the options ask for it

  /// With strategy ddp, the graph with its collectives, to which `ops` refer (`rewrite
  /// --data-parallel` writes the same graph); null: the given graph.
  std::shared_ptr<const ExecutionGraph> graph;

  double begin_us = 0;           ///< start of the step, after the first rank's start
  std::vector<PredictedOp> ops;  ///< in the order in which the host runs them
  std::vector<std::string> warnings;
};

/// Factors on the times of a prediction, so that a step takes the measured time.
struct StepScales {
  double host = 1;    ///< `PredictOptions::host_scale`
  double device = 1;  ///< `PredictOptions::device_scale`
};

}  // namespace perfmodel
