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

class FusionWriter {
 public:
  FusionWriter(const ExecutionGraph& graph, const TableFusionRewrite& rewrite,
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

  // Numbers of ops that are gone are given to those behind.
  std::int64_t moved(std::int64_t sequence) const {
    if (sequence < 0) return sequence;
    return sequence -
           (std::lower_bound(closed_.begin(), closed_.end(), sequence) - closed_.begin());
  }

  void leave_out(const std::vector<std::int32_t>& nodes) {
    for (std::int32_t node : nodes) edit_.replace(node);
  }

  void plan(const TableFusion& fusion) {
    State& state = states_.emplace_back(State{.fusion = fusion});
    const bool sgd = rewrite_.optimizer == TableFusionRewrite::Optimizer::kSgd;
    state.tables.optimizer =
        sgd ? TableBatch::Optimizer::kSgd : TableBatch::Optimizer::kRowwiseAdagrad;
    state.tables.learning_rate = sgd ? fusion.learning_rate : kAdagradLearningRate;
    const std::int32_t last = fusion.bags.back().node;  // by then all indices are there
    for (const FusibleBag& bag : fusion.bags) {
      const auto shape = source_.shape(source_.tensors[bag.weight]);
      state.tables.rows.push_back(shape[0]);
      state.tables.dims.push_back(shape[1]);
      state.lookups += source_.tensors[bag.indices].numel;
      leave_out({bag.node});
      if (bag.node != last && bag.sequence >= 0) closed_.push_back(bag.sequence);
    }
    const auto tables = static_cast<std::int64_t>(fusion.bags.size());
    const DType indices = source_.tensors[fusion.bags.front().indices].dtype;
    const DType offsets = source_.tensors[fusion.bags.front().offsets].dtype;
    plan_input(fusion.indices, state.indices, indices, {state.lookups});
    plan_input(fusion.offsets, state.offsets, offsets, {tables * fusion.batch + 1});
    edit_.replace(last, [this, &state] { look_up(state); });
    edit_.follow(fusion.cat, [this, &state] { shorten_cat(state); });
    for (std::int32_t child : source_.children(fusion.cat)) {
      edit_.follow(child, [this, &state] { shorten_cat(state); });
    }
    plan_backward(state);
    if (fusion.step) {
      edit_.refill(fusion.step->label, [this, &fusion] {
        // Lists and fused steps take over where sparse gradients needed a loop.
        OptimizerRewrite how;
        how.implementation = TrainingOptions::Implementation::kDefault;
        write_optimizer_step(copy_, *fusion.step, how);
      });
    }
  }

  void plan_backward(State& state) {
    const TableFusion& fusion = state.fusion;
    for (const auto* nodes :
         {&fusion.narrows, &fusion.functions, &fusion.accumulations, &fusion.zeroings}) {
      leave_out(*nodes);
    }
    if (fusion.cat_function < 0) return;
    const auto first = *std::min_element(fusion.narrows.begin(), fusion.narrows.end());
    edit_.replace(first, [this, &state] { cut_gradient(state); });
    // The function of the highest number, which is that of the lookup, comes first.
    const auto function = *std::min_element(fusion.functions.begin(), fusion.functions.end());
    edit_.replace(function, [this, &state, function] { go_back(state, function); });
  }

  void plan_input(const std::optional<LoadedInput>& input, TensorRef& made, DType dtype,
                  const Shape& shape) {
    if (!input) return;
    leave_out(input->views);
    leave_out(input->copies);
    if (input->copies.empty()) {
      made = graph_.new_tensor(dtype, shape);
      return;
    }
    const std::int32_t first = input->copies.front();
    edit_.replace(first, [this, &made, dtype, shape, first, pinned = input->pinned] {
      const Node& node = source_.node(first);
      copy_.close_beside(first);
      const TensorRef from = graph_.new_tensor(dtype, GraphBuilder::cpu(), shape);
      made = to_device(graph_, from, pinned, moved(node.seq_id));
    });
  }

  std::vector<TensorRef> tensors(const TableFusion& fusion, std::uint32_t FusibleBag::*field) {
    std::vector<TensorRef> found;
    for (const FusibleBag& bag : fusion.bags) found.push_back(graph_.tensor_of_source(bag.*field));
    return found;
  }

  // Offsets of a table count from its own first index, those of a lookup from the first of all;
  // the number of all indices stands last.
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

  // The cat that was copied last, or what it calls: one input in place of the vectors.
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
      std::vector<Argument> inputs;
      for (std::uint32_t input = 0; input < list.count; ++input) {
        const std::size_t first = fusion.first_input;
        if (input == first) inputs.push_back(graph_.tensor_argument(state.vectors));
        if (input < first || input >= first + fusion.bags.size()) {
          inputs.push_back(made.arguments[list.index + input]);
        }
      }
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
    std::int64_t columns = 0;
    for (std::int64_t dim : state.tables.dims) columns += dim;
    state.gradient = narrow(graph_, gradient, 1, state.fusion.first_column, columns);
  }

  void go_back(State& state, std::int32_t function) {
    copy_.close_beside(function);
    state.tape->run_one(state.vectors, state.gradient);
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

Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& graph,
                                            const TableFusionRewrite& rewrite) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const BackwardPass backward = backward_pass(graph);
  std::vector<TableFusion> fusions;
  std::size_t most = 0;
  for (const GraphIteration& iteration : iterations(graph)) {
    auto fusion = find_table_fusion(graph, iteration, backward);
    if (!fusion) return Unexpected{fusion.error()};
    most = std::max(most, fusion->bags.size());
    if (fusion->bags.size() > 1) fusions.push_back(std::move(*fusion));
  }
  if (fusions.empty()) {
    return refuse_table_fusion(
        fmt::format("expected at least two aten::embedding_bag in a step, found {}", most));
  }
  return FusionWriter(graph, rewrite, fusions).write();
}

}  // namespace perfmodel
