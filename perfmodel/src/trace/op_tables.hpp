#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/trace_analysis.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {

/// Own work of an op of the trace, from its shapes.
struct OpWork {
  KernelFamily family = KernelFamily::kSmall;  ///< family of its largest kernel
  double flop = 0, bytes = 0;
  std::optional<double> roofline_us = {};  ///< nothing for work that crosses a link
  KernelWork largest = {};                 ///< the kernel that moves most bytes
};
/// Ops that are alike have one entry.
struct OpWorks {
  std::vector<std::int32_t> entry;  ///< per host event, into `works`; -1: no rule knows
  std::vector<OpWork> works;

  const OpWork* of(std::size_t event) const {
    return event < entry.size() && entry[event] >= 0 ? &works[entry[event]] : nullptr;
  }
};

/// Nesting of ops by time, annotations passed over.
struct OpTree {
  std::vector<std::int32_t> parent;    ///< per host event: innermost op around it; -1: none
  std::vector<std::int32_t> launcher;  ///< per device event: innermost op around its call; -1: none
};
OpTree op_tree(const Trace& trace, const TraceOps& ops);

/// Fills ops, ops_by_shape, phases and device_outside_ops_us.
void add_op_tables(const Trace& trace, const TraceSelection& chosen, const TraceOps& nesting,
                   const OpTree& tree, const OpWorks& works, TraceAnalysis& analysis);

/// Calls of modules by name, longest device time first. A module launches whatever the calls within
/// it on its thread launch.
std::vector<TraceAnalysis::Module> module_table(const Trace& trace, const TraceSelection& chosen);

}  // namespace perfmodel
