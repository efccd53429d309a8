#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "analyze/step_facts.hpp"
#include "predict/job_tasks.hpp"
#include "predict/pipeline.hpp"

namespace perfmodel::findings {

/// The steps of one rank's graph on a GPU in steady state, and their schedule.
class PredictedStep final : public Rescheduler {
 public:
  /// `rank` and its referents must outlive it. Errors as in `predict`; a table of method lin.
  static Result<std::unique_ptr<PredictedStep>> create(const RankInput& rank, const Gpu& gpu);

  const StepFacts& facts() const { return facts_; }
  Result<double> step_us(const Repair& repair) const override;
  Result<std::vector<PathPiece>> critical_path() const override { return path_; }

 private:
  explicit PredictedStep(PacedProgram paced) : paced_(std::move(paced)) {}
  Result<void> find_facts(const Gpu& gpu);
  void find_path(const JobTasks& tasks);
  void find_memory();
  std::int32_t op_of_item(std::int32_t item, double start_us);
  std::int32_t op_of_node(std::int32_t node, std::int32_t top_node, std::int32_t top_op,
                          double start_us);
  std::int32_t label_of(std::int32_t node, double start_us, std::int32_t thread);

  PacedProgram paced_;
  StepFacts facts_;
  std::vector<PathPiece> path_;
  std::vector<std::int32_t> op_of_item_;                   // per item of the program
  std::unordered_map<std::int32_t, std::int32_t> labels_;  // node of a label -> op
  std::unordered_map<std::int32_t, std::int32_t> inner_;   // node below a top-level op -> op
  std::vector<std::int32_t> op_of_instruction_;            // per instruction; -1: none
  std::vector<std::size_t> instruction_of_kernel_;         // per kernel
  std::vector<std::size_t> instruction_of_wait_;           // per wait
};

}  // namespace perfmodel::findings
