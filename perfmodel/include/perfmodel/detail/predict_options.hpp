#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/detail/launching.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {

struct PredictOptions {
  const KernelTimes* kernel_times = nullptr;
  KernelTimes::Use use = KernelTimes::Use::kAll;
  /// Collectives of a rank that was traced alone (`KernelTimes::alone_on`) keep their recorded
  /// waits for other ranks; never with a `world_size` or `scale_out`.
  bool recorded_waits = true;
  const KernelModels* models = &KernelModels::heuristic();
  /// Asked instead of `models`, except for collectives; it must hold prices of the same models and
  /// GPU.
  PriceCache* prices = nullptr;
  std::int64_t world_size = 0;  ///< for collectives whose group size is not recorded
  std::optional<std::pair<std::size_t, std::size_t>> iterations;  ///< [first, last) of the graph's
  Launching launching = Launching::kEager;  ///< regions: see docs/overheads.md
  /// Whose collectives `models` price; null: the GPU's usual one.
  const Topology* topology = nullptr;
  std::optional<ScaleOut> scale_out;  ///< run the graph on several equal ranks
  bool keep_ops = true;               ///< fill `ops` and `critical_path`
  bool keep_calls = false;            ///< fill the calls of `ops`, for timelines
  std::size_t what_if_steps = 0;      ///< longest steps of the path to schedule again as if free
  double host_scale = 1;    ///< multiplies the host's own time; the device's stays. Above 0.
  double device_scale = 1;  ///< multiplies kernels, copies and sets, not collectives. Above 0.
  /// A busy device is held to its power limit (power.hpp); else all kernels are bursts.
  bool sustained = true;
  bool step_range = true;         ///< fill `e2e_low_us` and `e2e_high_us`
  bool host_sensitivity = false;  ///< fill `host_sensitivity`, for `kOtherHosts`
  std::stop_token cancel = {};    ///< ends the prediction with ErrorCode::kCancelled

  bool keeps_recorded_waits() const {
    return recorded_waits && kernel_times && kernel_times->alone_on && world_size == 0 &&
           !scale_out;
  }
};

/// Scales of hosts that a report compares with the one that was asked for.
/// Nine of ten host-bound steps of two machines lie between (docs/accuracy.md).
inline constexpr std::array<double, 2> kOtherHosts = {0.75, 1.4};
/// Range of scales for the host that recorded the overheads, with this program and under the same
/// profiler.
inline constexpr std::array<double, 2> kSameHosts = {0.9, 1.1};
inline constexpr double kMostHostScale = 1e6;

/// One rank of a job. Its pointers must outlive the call (the prediction points into the graph's
/// names).
struct RankInput {
  const ExecutionGraph* graph = nullptr;
  const OverheadTable* table = nullptr;
  PredictOptions options = {};
  std::string name = {};  ///< in messages; empty: "rank N"
};

struct JobOptions {
  /// When each rank begins the step, in microseconds on one clock; empty: the steady state.
  std::vector<double> rank_start_us;
  bool missing_collectives = false;  ///< a collective that a rank lacks is no error
  bool keep_chakra = false;          ///< fill `JobPrediction::chakra`
  std::int64_t stages = 1;  ///< above 1: the one rank is copied for every stage of a pipeline
  std::vector<double> stage_layers = {};  ///< layers of each stage; empty: as many everywhere
};

}  // namespace perfmodel
