#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "host_instruction.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A top-level op, or a label with calls of its own, in program order.
struct ProgramItem {
  std::int32_t node = -1;     ///< see HostFacts::Item
  std::int32_t subject = -1;  ///< node that it is called after
  std::int32_t thread = 0;
  std::int32_t phase = 0;
  bool is_label = false;
  std::int32_t iteration = 0;
  std::uint32_t first_kernel = 0, kernels = 0;  ///< into HostProgram::kernels
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
  std::string_view title = {};  ///< for items without a node; empty: the subject's name
};

std::string_view name_of(const ProgramItem& item, const ExecutionGraph& graph);

/// Work of one rank's host in one pass over its graph.
struct HostProgram {
  std::vector<GraphIteration> steps;
  std::vector<ProgramItem> items;
  std::vector<PredictedKernel> kernels;  ///< item by item
  std::vector<Instruction> instructions;
  std::vector<CollectiveLaunch> collectives;  ///< see Launch::collective
  std::vector<Prediction::Phase> phases;      ///< labels
  std::int32_t rest_phase = 0;
  std::vector<KernelWork> comm_works;
  std::optional<ScaledOut> scaled_out;
  double slowest_board_us = 0;    ///< part of the power limit's time: see hold_to_power_limit
  Prediction::Coverage coverage;  ///< host time by key level
  LoweringStats lowering;

  const ProgramItem& item(std::int32_t index) const { return items[index]; }
  const PredictedKernel& kernel(const Launch& launch) const { return kernels[launch.kernel]; }
  PredictedKernel& kernel(const Launch& launch) { return kernels[launch.kernel]; }
  const CollectiveLaunch& collective(const Launch& launch) const {
    return collectives[launch.collective];
  }
  CollectiveLaunch& collective(const Launch& launch) { return collectives[launch.collective]; }
  /// Appends to `collectives`; returns the place there, for Launch::collective.
  std::int32_t add(const CollectiveLaunch& collective) {
    collectives.push_back(collective);
    return static_cast<std::int32_t>(collectives.size()) - 1;
  }
  double device_us(const Launch& launch) const { return kernel(launch).price.time.count(); }
  /// The kernel's position within its item.
  std::int32_t position(const Launch& launch, std::int32_t item_index) const {
    return launch.kernel - static_cast<std::int32_t>(item(item_index).first_kernel);
  }
};

/// Everything that a kernel's price depends on.
struct KernelQuestion {
  KernelWork work;
  std::int32_t node = -1;                     ///< node of the kernel, may hold its time; -1: none
  int tasks = 1;                              ///< pieces of this work that the call starts
  const KernelTimes::Time* traced = nullptr;  ///< in place of a model's price
  double growth = 1;                          ///< factor on that time
  bool of_job = false;          ///< a collective among the ranks that the graph is scaled out to
  double share = 1;             ///< part of the work that is left to this rank
  std::int32_t rule_work = -1;  ///< among the work that rules gave, in the order of nodes; -1: not
};

/// A program whose kernels have no prices yet.
struct LoweredProgram {
  HostProgram program;
  std::vector<KernelQuestion> questions;         ///< per kernel
  std::unique_ptr<KernelModel> job_collectives;  ///< prices those that are `of_job`
  bool nodes_say_times = false;                  ///< see given_times.hpp
  std::optional<LoweringNotes> notes;            ///< see lower_again; none: it cannot be
};

/// The host's own work in a step, microseconds.
double host_us_per_step(const HostProgram& program);

/// Multiplies all work of the host itself; its waits, and latencies on the device's side, stay.
void scale_host(HostProgram& program, double factor);

/// A duration that sums can still hold: no overhead table, kernel model or rewrite gives a longer
/// one, or none. The error names the op.
Result<void> check_time(double us, std::string_view op, const Node& node);

/// The same of all durations of a program.
Result<void> check_times(const HostProgram& program, const ExecutionGraph& graph);

}  // namespace perfmodel
