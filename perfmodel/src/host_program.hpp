#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/lower.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One step of the host program. A pass over all instructions is one pass over the graph.
struct Instruction {
  enum class Kind : std::uint8_t {
    kHost,
    kLaunch,
    kBlockingCopy,
    kSync,
    kCommWait,
    kMark
  } kind = Kind::kHost;
  Term term = Term::kT1;    ///< of the host or device time
  std::int32_t op = 0;      ///< position in the list of items
  std::int32_t thread = 0;  ///< host lane
  std::int32_t stream = 0;  ///< role
  double host_us = 0;       ///< kHost: the time; kBlockingCopy, kSync: own time after the wait
  double device_us = 0;
  double latency_us = 0;  ///< kSync: own time after an awaited end beyond host_us
  std::int64_t sequence = -1;
  std::int32_t group = -1;  ///< collectives and waits: process group, by order; -1: not known
  SyncKind sync = SyncKind::kNone;
  bool collective = false;
  std::int32_t kernel = -1;      ///< into the item's kernels
  std::int32_t phase = -1;       ///< if it is not the item's
  std::int32_t comm = -1;        ///< collectives: into ExecutionGraph::comm_records, or -1
  double comm_bytes = -1;        ///< collectives: what this rank puts in; -1: not known
  std::int32_t comm_work = -1;   ///< collectives: into HostProgram::comm_works, or -1
  bool waits_for_caller = true;  ///< collectives: for the work of the thread's stream so far
  std::int32_t after_mark = -1;  ///< kMark: the number that the stream's last task gets;
                                 ///< collectives: waits for that task of this pass
  std::int32_t meeting = -1;  ///< collectives that meet those of other ranks: which one of the pass
};

/// Multiplies time and range.
void scale(Price& price, double factor);

/// A top-level op, or a label with calls of its own, in program order.
struct ProgramItem {
  std::int32_t node = -1;
  std::int32_t thread = 0;
  std::int32_t phase = 0;
  bool is_label = false;
  std::int32_t iteration = 0;
  LoweredOp lowered;
  std::vector<PredictedKernel> kernels;
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
  std::string_view title = {};  ///< of items that no node stands for; empty: the node's name
};

/// What one rank's host does in one pass over its graph, with priced kernels.
struct HostProgram {
  std::vector<GraphIteration> steps;
  std::vector<ProgramItem> items;
  std::vector<Instruction> instructions;
  std::vector<Prediction::Phase> phases;  ///< labels
  std::int32_t rest_phase = 0;
  std::vector<KernelWork> comm_works;
  std::optional<ScaledOut> scaled_out;
  Prediction::Coverage coverage;  ///< host time by key level
  LoweringStats lowering;
};

/// Lowers and prices the graph and writes down what its host does. Errors: no ops, iterations out
/// of range.
Result<HostProgram> make_host_program(const ExecutionGraph& graph, const Gpu& gpu,
                                      const OverheadTable& table, const PredictOptions& options);

}  // namespace perfmodel
