#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "perfmodel/predictor.hpp"
#include "sweep_points.hpp"

namespace perfmodel::sweep {

/// The graphs that threads work on, each made once; kept while a thread holds it.
class GraphStore {
 public:
  GraphStore(const SweepSpec& spec, const GraphToolbox& toolbox) : spec_(spec), toolbox_(toolbox) {}

  Result<std::shared_ptr<const RecordedProgram>> get(std::size_t graph);

 private:
  Result<RecordedProgram> built(const GraphSource& source) const;

  const SweepSpec& spec_;
  const GraphToolbox& toolbox_;
  std::mutex mutex_;
  std::map<std::size_t, std::weak_ptr<const RecordedProgram>> graphs_;
};

/// Answers rows; one per thread. Keeps the last graph as it is and in its last rewritten form,
/// which the next row mostly needs. The predictor changes batches of the former itself, almost for
/// free.
class RowMaker {
 public:
  RowMaker(const SweepPoints& points, const Predictor& predictor, GraphStore& graphs)
      : points_(points), predictor_(predictor), graphs_(graphs) {}

  struct Row {
    std::string cells;       ///< cells of the results
    bool refused = false;    ///< it tells why there are none
    bool too_large = false;  ///< its static memory does not fit into the GPU
  };
  /// Errors end the sweep: a graph that cannot be made, no memory.
  Result<Row> make(std::uint64_t index);

 private:
  Result<void> load(std::size_t graph);
  Result<void> rewrite(std::uint64_t group, const SweepPoints::Point& point);
  std::optional<std::int64_t> only_batch(const SweepPoints::Point& point) const;
  Result<ExecutionGraph> rewritten(const std::string& gpu, std::span<const NamedRewrite> rewrites);
  bool is_prepared_for(const std::string& gpu) const;
  Result<void> match_step(const GraphSource& source);
  Result<Row> answer(const Result<Prediction>& prediction) const;

  const SweepPoints& points_;
  const Predictor& predictor_;
  GraphStore& graphs_;
  std::optional<std::size_t> graph_number_;
  std::shared_ptr<const RecordedProgram> graph_;
  std::optional<Result<PreparedGraph>> plain_;  // the graph as it is, once a row asks for it
  StepScales scales_;                           // scales of its measured step
  Launching launching_ = Launching::kEager;     // launching of the last rewritten form
  std::optional<std::uint64_t> group_;
  std::optional<std::string> vendor_;  // vendor of the libraries in a captured graph
  Result<PreparedGraph> prepared_ = decline("nothing is prepared");
};

}  // namespace perfmodel::sweep
