#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// The node with the record of a collective that `node` calls: its own or the nearest above it
/// (nccl:* labels lie inside the record), or -1.
std::int32_t comm_node(const ExecutionGraph& graph, std::int32_t node);

/// What a collective moves, if its record tells; the call may belong to a label inside it. Between
/// `world` ranks where their number is not recorded; 0: not known either.
std::optional<KernelWork> comm_work(const ExecutionGraph& graph, const Gpu& gpu,
                                    std::int32_t comm_node, std::int64_t world);

/// What the device does for a call.
struct LaunchedWork {
  KernelWork work;
  bool inferred = false;  ///< only the launch template knows of it
};
/// Takes the work out of `op`.
LaunchedWork launched_work(const ExecutionGraph& graph, const Gpu& gpu, const LoweredCall& call,
                           LoweredOp& op, std::int64_t world);

/// Kernels that the host starts for `work`: several where it stands for the steps of recurrent
/// layers, as today's libraries run them.
double launches_of_library(const KernelWork& work, const Gpu& gpu);

/// What a template calls the kernel. Without one, generated kernels have the name of their node,
/// copies and collectives that of recordings, and others their family's.
std::string work_name(const ExecutionGraph& graph, const LoweredCall& lowered,
                      const KernelWork& work);

/// Of the device's time.
Term device_term(const TemplateCall& call, bool collective);

/// From the end of a call to the start of what it launches on an idle stream.
double launch_latency_us(const TemplateCall& call, Term term, const OverheadTable& table);

/// Adds the "wait" records of `node` and of all below it.
void find_recorded_waits(const ExecutionGraph& graph, std::int32_t node,
                         std::vector<std::int32_t>& waits);

/// The last node that has ended when a call is made: calls may stand behind children of their node.
std::int32_t last_node_before(const ExecutionGraph& graph, const LoweredCall& call);

}  // namespace perfmodel
