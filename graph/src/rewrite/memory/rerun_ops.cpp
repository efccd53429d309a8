#include "rerun_ops.hpp"

#include <unordered_map>

#include "kept_dropout.hpp"
#include "kept_storages.hpp"
#include "recomputed_tensors.hpp"
#include "rewrite/dialect.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tree_walk.hpp"

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

// What the ops take that they do not make themselves.
void keep_rerun_inputs(KeptStorages& kept, const ExecutionGraph& graph, const BackwardPass& pass,
                       const Rerun& rerun) {
  const std::int32_t until = pass.functions[rerun.function].function;
  for (std::int32_t tree : rerun.nodes) {
    const Node& node = graph.node(tree);
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      kept.keep(static_cast<std::uint32_t>(&tensor - graph.tensors.data()), tree, until);
    });
  }
}

}  // namespace

ExecutionGraph write_reruns(const ExecutionGraph& graph, const BackwardPass& pass,
                            const std::vector<Rerun>& reruns) {
  if (graph.built) return RerunWriter(graph, pass, reruns).run();
  ExecutionGraph kept = graph;
  KeptStorages storages(kept);
  for (const Rerun& rerun : reruns) keep_rerun_inputs(storages, kept, pass, rerun);
  return RerunWriter(kept, pass, reruns).run();
}

}  // namespace perfmodel
