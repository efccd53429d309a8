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
/// (nccl:* labels are inside the record), or -1.
std::int32_t comm_node(const ExecutionGraph& graph, std::int32_t node);

/// Work of a collective, if its record tells; the call may belong to a label inside it. `world` is
/// the number of ranks if it is not recorded; 0: not known either.
std::optional<KernelWork> comm_work(const ExecutionGraph& graph, const Gpu& gpu,
                                    std::int32_t comm_node, std::int64_t world);

/// Device work of a call.
struct LaunchedWork {
  KernelWork work;
  bool inferred = false;  ///< only the launch template knows of it
};
/// Takes the work out of `op`.
LaunchedWork launched_work(const ExecutionGraph& graph, const Gpu& gpu, const LoweredCall& call,
                           LoweredOp& op, std::int64_t world);

/// Kernels that the host starts for `work`: several if it covers the steps of recurrent layers, as
/// today's libraries run them.
double launches_of_library(const KernelWork& work, const Gpu& gpu);

/// Name of the kernel in the template. Without a template, generated kernels are named after their
/// node, copies and collectives as in recordings, and others after their family.
std::string work_name(const ExecutionGraph& graph, const LoweredCall& lowered,
                      const KernelWork& work);

/// Term of the device's time.
Term device_term(const TemplateCall& call, bool collective);

/// Time from the end of a call to the start of its work on an idle stream.
double launch_latency_us(const TemplateCall& call, Term term, const OverheadTable& table);

/// Adds the "wait" records of `node` and of all below it.
void find_recorded_waits(const ExecutionGraph& graph, std::int32_t node,
                         std::vector<std::int32_t>& waits);

/// The last node that has ended when a call is made: calls may come after children of their node.
std::int32_t last_node_before(const ExecutionGraph& graph, const LoweredCall& call);

}  // namespace perfmodel
