#include "rerun_ops.hpp"

#include <unordered_map>

#include "kept_dropout.hpp"
#include "recomputed_tensors.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/dialect.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

class RerunWriter {
 public:
  RerunWriter(const ExecutionGraph& graph, const BackwardPass& pass,
              const std::vector<Rerun>& reruns)
      : graph_(graph), pass_(pass), copy_(graph, dialect_of(graph)), builder_(copy_.builder()) {
    for (const Rerun& rerun : reruns) {
      const auto f = rerun.function;
      at_[pass.functions[f].function].push_back(&rerun);
    }
  }

  ExecutionGraph run() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      copy_.copy(i);
      if (!pass_.in_backward[i]) continue;
      places_.apply(builder_.graph_being_made(), builder_.graph_being_made().nodes.back());
      const auto reruns = at_.find(i);
      if (reruns == at_.end()) continue;
      copy_.close_to(i);
      for (const Rerun* rerun : reruns->second) write(*rerun, i);
    }
    return copy_.finish();
  }

 private:
  void write(const Rerun& rerun, std::int32_t function) {
    RecomputedTensors tensors(builder_, ids_, places_);
    builder_.begin_plain(kRecomputeRegion);
    for (std::int32_t tree : rerun.nodes) {
      const auto close = [&] {
        tensors.close();
        builder_.close();
      };
      walk_tree(
          graph_, tree,
          [&](std::int32_t index) {
            const bool draws = draws_mask(graph_, graph_.node(index));
            Node copy =
                draws ? scaled_by_kept_mask(builder_, graph_.node(index)) : graph_.node(index);
            if (!draws) own_arguments(builder_, copy);
            tensors.open(copy);
            copy.seq_id = -1;
            copy.thread = graph_.node(function).thread;
            builder_.copy_node(copy);
            if (draws) close();
            return !draws;
          },
          close);
    }
    builder_.end_op();
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::unordered_map<std::int32_t, std::vector<const Rerun*>> at_;  // node of the function
  TensorPlaces places_;
  FreshIds ids_;
};

}  // namespace

ExecutionGraph write_reruns(const StepView& step, const std::vector<Rerun>& reruns) {
  return RerunWriter(step.graph(), step.backward(), reruns).run();
}

}  // namespace perfmodel
