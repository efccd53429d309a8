#include "perfmodel/graph/rewrites/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "builders/emit/concat.hpp"
#include "builders/emit/embedding.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/views.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "step/dialect.hpp"
#include "table_fusion_finder.hpp"

namespace perfmodel {
namespace {

constexpr double kAdagradLearningRate = 0.01;

class TableFusionWriter {
 public:
  TableFusionWriter(const ExecutionGraph& graph, const TableFusionRewrite& rewrite,
                    const std::vector<TableFusion>& fusions)
      : source_(graph),
        rewrite_(rewrite),
        edit_(graph, dialect_of(graph)),
        copy_(edit_.copy()),
        graph_(edit_.builder()) {
    for (const TableFusion& fusion : fusions) plan(fusion);
    std::sort(closed_.begin(), closed_.end());
  }

  ExecutionGraph write() {
    edit_.on_each_copy([this](std::int32_t, Node& made) { made.seq_id = moved(made.seq_id); });
    return edit_.write();
  }

 private:
  struct State {
    const TableFusion& fusion;
    TableBatch tables = {};
    std::int64_t lookups = 0;
    TensorRef indices = {}, offsets = {}, vectors = {}, gradient = {};
    std::unique_ptr<AutogradTape> tape = {};
  };

  // Later ops take over the numbers of ops that are gone.
  std::int64_t moved(std::int64_t sequence) const {
    if (sequence < 0) return sequence;
    return sequence -
           (std::lower_bound(closed_.begin(), closed_.end(), sequence) - closed_.begin());
  }

  void plan(const TableFusion& fusion) {
    State& state = states_.emplace_back(State{.fusion = fusion});
    const bool sgd = rewrite_.optimizer == TableFusionRewrite::Optimizer::kSgd;
    state.tables.optimizer =
        sgd ? TableBatch::Optimizer::kSgd : TableBatch::Optimizer::kRowwiseAdagrad;
    state.tables.learning_rate = sgd ? fusion.learning_rate : kAdagradLearningRate;
    const FusibleBag &first = fusion.bags.front(), &last = fusion.bags.back();
    for (const FusibleBag& bag : fusion.bags) {
      const auto shape = source_.shape(source_.tensors[bag.weight]);
      state.tables.rows.push_back(shape[0]);
      state.tables.dims.push_back(shape[1]);
      state.lookups += source_.tensors[bag.indices].numel;
      if (&bag != &last && bag.sequence >= 0) closed_.push_back(bag.sequence);
    }
    const auto tables = static_cast<std::int64_t>(fusion.bags.size());
    for (const std::int32_t node : fusion.left_out) edit_.replace(node);
    plan_input(fusion.indices, state.indices, first.indices, {state.lookups});
    plan_input(fusion.offsets, state.offsets, first.offsets, {tables * fusion.batch + 1});
    edit_.replace(last.node, [this, &state] { look_up(state); });  // by then all indices are there
    edit_.follow(fusion.cat, [this, &state] { shorten_cat(state); });
    for (std::int32_t child : source_.children(fusion.cat)) {
      edit_.follow(child, [this, &state] { shorten_cat(state); });
    }
    if (fusion.cat_function >= 0) {
      edit_.replace(fusion.first_narrow, [this, &state] { cut_gradient(state); });
      // The lookup's function, which has the highest number, comes first.
      edit_.replace(fusion.first_function, [this, &state] { go_back(state); });
    }
    if (fusion.step) {
      edit_.refill(fusion.step->label, [this, &fusion] {
        // Lists and fused steps take over where sparse gradients needed a loop.
        OptimizerRewrite how;
        how.implementation = TrainingOptions::Implementation::kDefault;
        write_optimizer_step(copy_, rewritten_step(*fusion.step, how, graph_.pytorch()));
      });
    }
  }

  // `like`: the input of one table.
  void plan_input(const std::optional<LoadedInput>& input, TensorRef& made, std::uint32_t like,
                  const Shape& shape) {
    if (!input) return;
    const DType dtype = source_.tensors[like].dtype;
    if (input->copy < 0) {
      made = graph_.new_tensor(dtype, shape);
      return;
    }
    edit_.replace(input->copy,
                  [this, &made, dtype, shape, copy = input->copy, pinned = input->pinned] {
                    copy_.close_beside(copy);
                    const TensorRef from = graph_.new_tensor(dtype, GraphBuilder::cpu(), shape);
                    made = to_device(graph_, from, pinned, moved(source_.node(copy).seq_id));
                  });
  }

  std::vector<TensorRef> tensors(const TableFusion& fusion, std::uint32_t FusibleBag::*field) {
    std::vector<TensorRef> found;
    for (const FusibleBag& bag : fusion.bags) found.push_back(graph_.tensor_of_source(bag.*field));
    return found;
  }

  // Offsets of a table count from its own first index, offsets of a lookup from the first of all;
  // the number of all indices comes last.
  TensorRef joined_offsets(const TableFusion& fusion, std::int64_t sequence) {
    const auto count = static_cast<std::int64_t>(fusion.bags.size());
    const DType dtype = source_.tensors[fusion.bags.front().offsets].dtype;
    const TensorRef stacked = stack(graph_, tensors(fusion, &FusibleBag::offsets), 0, sequence);
    const TensorRef first = graph_.new_tensor(dtype, {count, 1});
    const TensorRef shifted = add(graph_, stacked, first, sequence);
    const TensorRef flat = view(graph_, shifted, {-1}, sequence);
    return cat(graph_, {flat, graph_.new_tensor(dtype, {1})}, 0, sequence);
  }

  void look_up(State& state) {
    const Node& last = source_.node(state.fusion.bags.back().node);
    copy_.close_beside(state.fusion.bags.back().node);
    const std::int64_t sequence = moved(last.seq_id);
    if (!state.indices.exists()) {
      state.indices = cat(graph_, tensors(state.fusion, &FusibleBag::indices), 0, sequence);
    }
    if (!state.offsets.exists()) state.offsets = joined_offsets(state.fusion, sequence);
    state.tape = std::make_unique<AutogradTape>(graph_, sequence);
    state.vectors = table_batched_lookup(*state.tape, state.tables, state.fusion.batch,
                                         state.indices, state.offsets);
  }

  // Gives the cat that was copied last, or the op that it calls, one input in place of the vectors.
  void shorten_cat(const State& state) {
    ExecutionGraph& made = graph_.graph_being_made();
    const Node& node = made.nodes.back();
    const TableFusion& fusion = state.fusion;
    for (std::uint32_t i = node.inputs_begin; i < node.inputs_begin + node.inputs_count; ++i) {
      const Argument list = made.arguments[i];
      if (list.kind != Argument::Kind::kList ||
          list.count < fusion.first_input + fusion.bags.size()) {
        continue;
      }
      const auto all = made.elements(list);
      std::vector<Argument> inputs(all.begin(), all.end());
      const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(fusion.first_input);
      inputs.erase(first + 1, first + static_cast<std::ptrdiff_t>(fusion.bags.size()));
      inputs[fusion.first_input] = graph_.tensor_argument(state.vectors);
      const auto begin = static_cast<std::uint32_t>(made.arguments.size());
      made.arguments.insert(made.arguments.end(), inputs.begin(), inputs.end());
      made.arguments[i].index = begin;
      made.arguments[i].count = static_cast<std::uint32_t>(inputs.size());
    }
  }

  void cut_gradient(State& state) {
    const std::int32_t function = state.fusion.cat_function;
    copy_.close_to(function);
    const TensorRef gradient = graph_.tensor_of_source(source_.inputs(function)[0].index);
    state.gradient =
        narrow(graph_, gradient, 1, state.fusion.first_column, sum_of(state.tables.dims));
  }

  void go_back(State& state) {
    copy_.close_beside(state.fusion.first_function);
    state.tape->run_back(state.vectors, state.gradient);
  }

  const ExecutionGraph& source_;
  const TableFusionRewrite& rewrite_;
  GraphEdit edit_;
  GraphCopy& copy_;
  GraphBuilder& graph_;
  std::deque<State> states_;
  std::vector<std::int64_t> closed_;  // sequence numbers that are gone
};

}  // namespace

Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& source,
                                            const TableFusionRewrite& rewrite) {
  const StepView step(source);
  if (auto good = step.check("table fusion", {}); !good) return Unexpected{good.error()};
  const ExecutionGraph& graph = step.graph();
  std::vector<TableFusion> fusions;
  std::size_t most = 0;
  for (const GraphIteration& iteration : iterations(graph)) {
    PERFMODEL_TRY(fusion, find_table_fusion(step, iteration));
    most = std::max(most, fusion->bags.size());
    if (fusion->bags.size() > 1) fusions.push_back(std::move(*fusion));
  }
  if (fusions.empty()) {
    return refuse_table_fusion(
        fmt::format("expected at least two aten::embedding_bag in a step, found {}", most));
  }
  return TableFusionWriter(graph, rewrite, fusions).write();
}

}  // namespace perfmodel
