#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/memory_answer.hpp"
#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// The memory that a trace recorded. It is no prediction, since a trace does not say which tensors
/// are the same.
struct MemoryOfTrace {
  std::string file;
  std::optional<Gpu> gpu;
  std::string device;           ///< "cuda:0", with the highest peak; empty: no records of a GPU
  bool totals_recorded = true;  ///< false: the peak is a lower bound, see MeasuredMemory
  PredictedMemory memory;       ///< peaks as recorded; `gpu` gives context and room
  std::string peak_op;          ///< innermost op at the peak, or empty
  std::vector<std::string> warnings;

  bool measured() const { return !device.empty(); }
  std::optional<bool> fits() const;
};

/// Without records of a GPU's memory (`profile_memory=True` makes them) nothing is known, as in the
/// prediction of a trace, and the first warning says so.
MemoryOfTrace memory_of_trace(const Trace& trace, std::optional<Gpu> gpu);

/// The same as the answer to a question. Error: the question needs to know the graph's tensors.
Result<MemoryOfTrace> memory_of_trace(const MemoryQuestion& question,
                                      const RecordedProgram& program, std::optional<Gpu> gpu);

}  // namespace perfmodel
