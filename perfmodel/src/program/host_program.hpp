#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "host_facts.hpp"
#include "host_instruction.hpp"
#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Multiplies time and range.
void scale(Price& price, double factor);

/// A top-level op, or a label with calls of its own, in program order.
struct ProgramItem {
  std::int32_t node = -1;     ///< see HostFacts::Item
  std::int32_t subject = -1;  ///< node that it is called after
  std::int32_t thread = 0;
  std::int32_t phase = 0;
  bool is_label = false;
  std::int32_t iteration = 0;
  std::vector<PredictedKernel> kernels;
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
  std::string_view title = {};  ///< of items that no node stands for; empty: the subject's name
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

/// A duration that sums can still hold: no overhead table, kernel model or rewrite gives a longer
/// one, or none. The error names the op.
Result<void> check_time(double us, std::string_view op, const Node& node);

/// Lowers and prices the graph and writes down what its host does. `facts`: of the graph, or of one
/// that differs in sizes alone, and of this table. `name_kernels`: false leaves the names of
/// kernels that are no collectives empty. Errors: see `add_scale_out` and `check_time`; cancelled.
Result<HostProgram> make_host_program(const ExecutionGraph& graph, const Gpu& gpu,
                                      const OverheadTable& table, const HostFacts& facts,
                                      const PredictOptions& options, bool name_kernels);

}  // namespace perfmodel
