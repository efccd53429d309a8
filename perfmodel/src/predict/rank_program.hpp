#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/graph_memory.hpp"
#include "perfmodel/detail/predict_options.hpp"
#include "program/data_parallel_graph.hpp"
#include "program/host_facts.hpp"
#include "program/host_program.hpp"

namespace perfmodel {

/// One rank of a job with its program.
struct RankProgram {
  RankInput rank;                                 ///< with strategy ddp of the graph below
  std::shared_ptr<const DataParallelGraph> made;  ///< null: the given graph was predicted
  std::shared_ptr<const KernelTimes> times;       ///< of that graph's nodes
  HostProgram program;
  std::shared_ptr<const MemoryPlan> memory;  ///< of the graph
  const Gpu* gpu = nullptr;                  ///< that it was priced on
  std::int64_t count = 1;                    ///< ranks of the job that do the same
  std::vector<KernelWork> works;             ///< per kernel of the program, where asked for

  const ExecutionGraph& graph() const { return *rank.graph; }
};

/// A rank's program by the stages facts, lowered, scaled out, priced. `facts`, `added_bytes`: see
/// predict_with. `name_kernels`: see lower_program. `keep_works` fills `works`. Errors: those of
/// the stages.
Result<RankProgram> make_rank_program(const RankInput& rank, const Gpu& gpu, const HostFacts* facts,
                                      std::optional<double> added_bytes, bool name_kernels,
                                      std::vector<std::string>& warnings, bool keep_works = false);

}  // namespace perfmodel
