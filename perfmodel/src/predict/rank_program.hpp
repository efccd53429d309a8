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
  std::shared_ptr<const KernelTimes> times;       ///< times of that graph's nodes
  /// The given graph with records of its collectives, if a fake process group left them out.
  std::shared_ptr<const ExecutionGraph> recorded;
  HostProgram program;
  std::shared_ptr<const MemoryPlan> memory;     ///< memory of the graph; null: it is not asked for
  const Gpu* gpu = nullptr;                     ///< it was priced on this GPU
  std::int64_t count = 1;                       ///< ranks of the job that do the same
  std::vector<KernelQuestion> questions;        ///< per kernel of the program, if asked for
  std::optional<LoweringNotes> notes;           ///< see repeat_rank_program
  const HostFacts* facts = nullptr;             ///< facts that the notes belong to
  bool repeats = false;                         ///< made by repeat_rank_program
  const std::vector<bool>* reshaped = nullptr;  ///< JobMemory::reshaped of its question

  const ExecutionGraph& graph() const { return *rank.graph; }
};

/// Makes a rank's program in the stages facts, lowered, scaled out, priced. `facts`, `added_bytes`:
/// see predict_with. `name_kernels`: see lower_program. Errors of the stages.
Result<RankProgram> make_rank_program(const RankInput& rank, const Gpu& gpu, const HostFacts* facts,
                                      std::optional<double> added_bytes, bool name_kernels,
                                      std::vector<std::string>& warnings,
                                      bool keep_questions = false);

/// Turns the program of the last question into the one for this question, with the same facts and
/// GPU: only the work and the prices of its kernels change. False: it would be another program, or
/// the last one has no notes. Errors: times that sums cannot hold.
Result<bool> repeat_rank_program(const RankInput& rank, const Gpu& gpu, const HostFacts& facts,
                                 const std::vector<bool>* reshaped, RankProgram& last);

}  // namespace perfmodel
