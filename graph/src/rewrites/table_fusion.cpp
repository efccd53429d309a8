#include "perfmodel/graph/rewrites/table_fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "../emit/concat.hpp"
#include "../emit/embedding.hpp"
#include "../emit/memory.hpp"
#include "../emit/views.hpp"
#include "dialect.hpp"
#include "graph_copy.hpp"
#include "optimizer_reader.hpp"
#include "optimizer_writer.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

Unexpected refuse(std::string message) {
  return fail(ErrorCode::kImpossible, "table fusion: " + std::move(message));
}

const Node& at(const ExecutionGraph& graph, std::int32_t index) {
  return graph.nodes[static_cast<std::size_t>(index)];
}

struct Bag {
  std::int32_t node = -1;
  std::int64_t sequence = -1;
  std::uint32_t weight = 0, indices = 0, offsets = 0, vector = 0;  // tensors of the graph
};

// Where indices or offsets come from.
struct Source {
  std::vector<std::int32_t> copies;  // from the host, to be replaced by one
  std::vector<std::int32_t> views;   // of what was copied, to be left out
  bool pinned = false;
};

// What becomes one lookup: the bags of one step.
struct Fusion {
  std::vector<Bag> bags;
  std::int64_t batch = 0;
  std::optional<Source> indices, offsets;  // none: they are joined on the GPU
  std::int32_t cat = -1;
  std::size_t first_input = 0;  // of the cat, that is a vector
  std::int64_t first_column = 0;
  std::int32_t cat_function = -1;           // backward function of the cat
  std::vector<std::int32_t> narrows;        // its pieces that are gradients of vectors
  std::vector<std::int32_t> functions;      // evaluate_function nodes of the bags
  std::vector<std::int32_t> accumulations;  // and of their parameters
  std::optional<ReadStep> step;             // without the tables
  double learning_rate = 0.01;
};

class FusionFinder {
 public:
  FusionFinder(const ExecutionGraph& graph, const GraphIteration& range)
      : graph_(graph), range_(range) {}

  Result<Fusion> find() {
    if (auto good = find_bags(); !good) return Unexpected{good.error()};
    if (fusion_.bags.size() < 2) return std::move(fusion_);
    find_sources();
    if (auto good = find_cat(); !good) return Unexpected{good.error()};
    if (auto good = find_backward(); !good) return Unexpected{good.error()};
    if (auto good = find_step(); !good) return Unexpected{good.error()};
    return std::move(fusion_);
  }

 private:
  const Tensor& tensor(std::uint32_t index) const { return graph_.tensors[index]; }

  bool is_top_level(const Node& node) const {
    if (node.is_label || node.is_structural || node.parent < 0) return false;
    return at(graph_, node.parent).is_label || at(graph_, node.parent).is_structural;
  }

  Result<void> find_bags() {
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& node = at(graph_, i);
      if (graph_.name(node) != "aten::embedding_bag" || node.scope != Scope::kFunction) continue;
      if (!is_top_level(node)) continue;
      if (auto good = take_bag(i); !good) return good;
    }
    return {};
  }

  Result<void> take_bag(std::int32_t index) {
    const Node& node = at(graph_, index);
    const auto in = graph_.inputs(node), out = graph_.outputs(node);
    const auto is_tensor = [](const Argument& a) { return a.kind == Kind::kTensor; };
    if (in.size() < 8 || out.empty() || !std::all_of(in.begin(), in.begin() + 3, is_tensor) ||
        !is_tensor(out[0])) {
      return refuse(
          fmt::format("expected an embedding_bag with weights, indices and offsets, "
                      "found node {}",
                      node.id));
    }
    const Bag bag{index, node.seq_id, in[0].index, in[1].index, in[2].index, out[0].index};
    const Tensor &weight = tensor(bag.weight), &offsets = tensor(bag.offsets);
    if (!weight.on_gpu()) return refuse("expected tables on a GPU, found one on a CPU");
    if (in[4].integer != 0) {
      return refuse(
          fmt::format("expected bags that sum, found mode {} (node {})", in[4].integer, node.id));
    }
    if (in[5].integer == 0) {
      return refuse(fmt::format("expected sparse gradients, found dense ones (node {})", node.id));
    }
    const bool weighted = is_tensor(in[6]) && tensor(in[6].index).numel > 0;
    if (weighted || in[7].integer != 0) {
      return refuse(
          fmt::format("expected bags without weights per sample or last offset, found "
                      "them (node {})",
                      node.id));
    }
    if (fusion_.bags.empty()) fusion_.batch = offsets.numel;
    if (offsets.numel != fusion_.batch) {
      return refuse(
          fmt::format("expected one batch, found {} and {}", fusion_.batch, offsets.numel));
    }
    if (!fusion_.bags.empty() && tensor(fusion_.bags[0].weight).device != weight.device) {
      return refuse("expected tables on one GPU, found several");
    }
    fusion_.bags.push_back(bag);
    return {};
  }

  // The last op before `before` that made this tensor.
  std::int32_t producer(std::uint32_t of, std::int32_t before) const {
    for (std::int32_t i = before - 1; i >= range_.begin; --i) {
      const Node& node = at(graph_, i);
      if (!is_top_level(node)) continue;
      const auto outputs = graph_.outputs(node);
      if (!outputs.empty() && outputs[0].kind == Kind::kTensor &&
          tensor(outputs[0].index).id == tensor(of).id) {
        return i;
      }
    }
    return -1;
  }

  bool copies_from_host(std::int32_t index) const {
    if (index < 0 || graph_.name(at(graph_, index)) != "aten::to") return false;
    const auto in = graph_.inputs(at(graph_, index));
    return !in.empty() && in[0].kind == Kind::kTensor && tensor(in[0].index).on_cpu();
  }

  // Reads of a tensor by ops other than bags and those of the source itself.
  bool read_elsewhere(std::uint32_t of, std::int32_t from,
                      const std::set<std::int32_t>& known) const {
    for (std::int32_t i = from + 1; i < fusion_.bags.back().node; ++i) {
      if (!is_top_level(at(graph_, i)) || known.contains(i)) continue;
      bool found = false;
      for_each_tensor(graph_, graph_.inputs(at(graph_, i)),
                      [&](const Tensor& t) { found |= t.id == tensor(of).id; });
      if (found) return true;
    }
    return false;
  }

  std::optional<Source> source(std::uint32_t Bag::*field) const {
    Source source;
    std::set<std::int32_t> known, copies;
    for (const Bag& bag : fusion_.bags) known.insert(bag.node);
    std::vector<std::pair<std::uint32_t, std::int32_t>> reads;
    for (const Bag& bag : fusion_.bags) {
      std::uint32_t of = bag.*field;
      std::int32_t from = producer(of, bag.node);
      if (from >= 0 && graph_.name(at(graph_, from)) == "aten::select") {
        source.views.push_back(from);
        known.insert(from);
        of = graph_.inputs(at(graph_, from))[0].index;
        from = producer(of, from);
      }
      if (!copies_from_host(from)) return std::nullopt;
      copies.insert(from);
      reads.emplace_back(of, from);
      const auto in = graph_.inputs(at(graph_, from));
      source.pinned = in.size() > 5 && in[5].kind == Kind::kBool && in[5].integer != 0;
    }
    for (const auto& [of, from] : reads) {
      if (read_elsewhere(of, from, known)) return std::nullopt;
    }
    source.copies.assign(copies.begin(), copies.end());
    return source;
  }

  void find_sources() {
    fusion_.indices = source(&Bag::indices);
    fusion_.offsets = source(&Bag::offsets);
  }

  Result<void> find_cat() {
    std::set<std::int64_t> vectors;
    for (const Bag& bag : fusion_.bags) vectors.insert(tensor(bag.vector).id);
    for (std::int32_t i = fusion_.bags.front().node + 1; i < range_.end; ++i) {
      const Node& node = at(graph_, i);
      if (!is_top_level(node)) continue;
      bool reads = false;
      for_each_tensor(graph_, graph_.inputs(node),
                      [&](const Tensor& t) { reads |= vectors.contains(t.id); });
      if (!reads) continue;
      if (graph_.name(node) == "aten::cat" && takes_all(node)) {
        fusion_.cat = i;
        return {};
      }
      return refuse(
          fmt::format("expected vectors that go side by side into one aten::cat, found "
                      "{} (node {})",
                      graph_.name(node), node.id));
    }
    return refuse("expected an aten::cat of the vectors, found none");
  }

  bool takes_all(const Node& node) {
    const auto in = graph_.inputs(node);
    if (in.size() < 2 || in[0].kind != Kind::kList || in[1].kind != Kind::kInt) return false;
    const auto list = graph_.elements(in[0]);
    if (in[1].integer != 1 && in[1].integer != -1) return false;
    std::int64_t column = 0;
    for (std::size_t first = 0; first + fusion_.bags.size() <= list.size(); ++first) {
      bool all = true;
      for (std::size_t b = 0; b < fusion_.bags.size(); ++b) {
        const Argument& input = list[first + b];
        all = all && input.kind == Kind::kTensor &&
              tensor(input.index).id == tensor(fusion_.bags[b].vector).id;
      }
      if (all) {
        fusion_.first_input = first;
        fusion_.first_column = column;
        return true;
      }
      if (list[first].kind == Kind::kTensor)
        column += graph_.shape(tensor(list[first].index)).back();
    }
    return false;
  }

  Result<void> find_backward() {
    std::map<std::int64_t, std::int32_t> functions;  // by sequence number
    bool any = false;
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& node = at(graph_, i);
      if (node.scope != Scope::kBackward) continue;
      any = true;
      if (node.seq_id >= 0) functions[node.seq_id] = i;
    }
    if (!any) return {};  // a forward pass alone
    for (const Bag& bag : fusion_.bags) {
      const auto function = functions.find(bag.sequence);
      if (function == functions.end()) {
        return refuse(
            fmt::format("expected the backward function of every bag, found none with "
                        "the number {}",
                        bag.sequence));
      }
      fusion_.functions.push_back(at(graph_, function->second).parent);
      const std::int32_t accumulation = accumulation_behind(fusion_.functions.back());
      if (accumulation < 0) {
        return refuse(
            "expected a sparse gradient behind the backward function of every bag, "
            "found none");
      }
      fusion_.accumulations.push_back(accumulation);
    }
    const auto cat = functions.find(at(graph_, fusion_.cat).seq_id);
    if (cat == functions.end()) return refuse("expected CatBackward0 of the vectors, found none");
    fusion_.cat_function = cat->second;
    return find_narrows();
  }

  std::int32_t accumulation_behind(std::int32_t function) const {
    for (std::int32_t i = function + 1; i < range_.end; ++i) {
      const Node& node = at(graph_, i);
      if (node.scope != Scope::kBackward || node.parent == function) continue;
      const auto in = graph_.inputs(node);
      const bool sparse =
          !in.empty() && in[0].kind == Kind::kTensor && tensor(in[0].index).storage_id == 0;
      return graph_.name(node).ends_with("AccumulateGrad") && sparse ? node.parent : -1;
    }
    return -1;
  }

  Result<void> find_narrows() {
    std::int64_t column = fusion_.first_column;
    for (const Bag& bag : fusion_.bags) {
      const std::size_t before = fusion_.narrows.size();
      for (std::int32_t child : graph_.children(at(graph_, fusion_.cat_function))) {
        const auto in = graph_.inputs(at(graph_, child));
        if (graph_.name(at(graph_, child)) == "aten::narrow" && in.size() == 4 &&
            in[2].integer == column) {
          fusion_.narrows.push_back(child);
        }
      }
      if (fusion_.narrows.size() != before + 1) {
        return refuse(
            "expected CatBackward0 to cut the gradient with aten::narrow, found other ops");
      }
      column += graph_.shape(tensor(bag.vector)).back();
    }
    return {};
  }

  Result<void> find_step() {
    std::set<std::int64_t> tables;
    for (const Bag& bag : fusion_.bags) tables.insert(tensor(bag.weight).id);
    for (std::int32_t label : optimizer_steps(graph_)) {
      if (label < range_.begin || label >= range_.end) continue;
      auto step = read_optimizer_step(graph_, label);
      if (!step) return Unexpected{step.error()};
      if (fusion_.step) return refuse("expected one optimizer step, found several");
      for (ReadGroup& group : step->groups) {
        const auto is_table = [&](const ReadUpdate& update) {
          const bool table =
              tables.contains(tensor(static_cast<std::uint32_t>(update.parameter)).id);
          if (table && group.settings.optimizer == TrainingOptions::Optimizer::kSgd) {
            tables.erase(tensor(static_cast<std::uint32_t>(update.parameter)).id);
            fusion_.learning_rate = group.settings.learning_rate;
            return true;
          }
          return false;
        };
        std::erase_if(group.updates, is_table);
      }
      if (!tables.empty()) {
        return refuse(
            fmt::format("expected an optimizer step that updates every table by SGD, "
                        "found {} without",
                        tables.size()));
      }
      fusion_.step = std::move(*step);
    }
    return {};
  }

  const ExecutionGraph& graph_;
  const GraphIteration& range_;
  Fusion fusion_;
};

class FusionWriter {
 public:
  FusionWriter(const ExecutionGraph& graph, const TableFusionRewrite& rewrite,
               const std::vector<Fusion>& fusions)
      : source_(graph),
        rewrite_(rewrite),
        copy_(graph, dialect_of(graph)),
        graph_(copy_.builder()),
        gone_(graph.nodes.size(), false) {
    for (const Fusion& fusion : fusions) plan(fusion);
    std::sort(closed_.begin(), closed_.end());
  }

  ExecutionGraph write() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(source_.nodes.size()); ++i) {
      const Node& node = at(source_, i);
      const bool inside = node.parent >= 0 && gone_[static_cast<std::size_t>(node.parent)] &&
                          !labels_.contains(node.parent);
      const bool in_step = labels_.contains(node.parent);
      if (inside || in_step || actions_.contains(i)) {
        gone_[static_cast<std::size_t>(i)] = true;
        if (const auto action = actions_.find(i); action != actions_.end()) action->second();
        continue;
      }
      copy_.copy(i);
      Node& made = graph_.graph_being_made().nodes.back();
      made.seq_id = moved(made.seq_id);
      if (const auto behind = behind_.find(i); behind != behind_.end()) behind->second();
    }
    return copy_.finish();
  }

 private:
  using Action = std::function<void()>;
  struct State {
    const Fusion& fusion;
    TableBatch tables;
    std::int64_t lookups = 0;
    TensorRef indices = {}, offsets = {}, vectors = {}, gradient = {};
    std::unique_ptr<AutogradTape> tape;
  };

  // Numbers of ops that are gone are given to those behind.
  std::int64_t moved(std::int64_t sequence) const {
    if (sequence < 0) return sequence;
    return sequence -
           (std::lower_bound(closed_.begin(), closed_.end(), sequence) - closed_.begin());
  }

  void leave_out(const std::vector<std::int32_t>& nodes) {
    for (std::int32_t node : nodes) actions_[node] = [] {};
  }

  void plan(const Fusion& fusion) {
    State& state = states_.emplace_back(State{.fusion = fusion, .tables = {}, .tape = nullptr});
    using Batched = TableBatch::Optimizer;
    state.tables.optimizer = rewrite_.optimizer == TableFusionRewrite::Optimizer::kAsBefore
                                 ? Batched::kSgd
                                 : Batched::kRowwiseAdagrad;
    state.tables.learning_rate = fusion.learning_rate;
    for (const Bag& bag : fusion.bags) {
      const auto shape = source_.shape(source_.tensors[bag.weight]);
      state.tables.rows.push_back(shape[0]);
      state.tables.dims.push_back(shape[1]);
      state.lookups += source_.tensors[bag.indices].numel;
      actions_[bag.node] = [] {};
      if (bag.node != fusion.bags.front().node) closed_.push_back(bag.sequence);
    }
    plan_copies(fusion.indices, state.indices, {state.lookups});
    const auto tables = static_cast<std::int64_t>(fusion.bags.size());
    plan_copies(fusion.offsets, state.offsets, {tables * fusion.batch + 1});
    actions_[fusion.bags.front().node] = [this, &state] { look_up(state); };
    behind_[fusion.cat] = [this, &state] { shorten_cat(state); };
    leave_out(fusion.narrows);
    leave_out(fusion.functions);
    leave_out(fusion.accumulations);
    if (!fusion.narrows.empty()) {
      const auto first = *std::min_element(fusion.narrows.begin(), fusion.narrows.end());
      actions_[first] = [this, &state] { cut_gradient(state); };
      // The highest number comes first.
      const auto function = *std::min_element(fusion.functions.begin(), fusion.functions.end());
      actions_[function] = [this, &state, function] { go_back(state, function); };
    }
    if (fusion.step) {
      labels_.insert(fusion.step->label);
      behind_[fusion.step->label] = [this, &fusion] {
        // Lists and fused steps take over where sparse gradients needed a loop.
        write_optimizer_step(copy_, *fusion.step,
                             {.implementation = TrainingOptions::Implementation::kDefault});
      };
    }
  }

  void plan_copies(const std::optional<Source>& from, TensorRef& made, Shape shape) {
    if (!from) return;
    leave_out(from->views);
    leave_out(from->copies);
    const std::int32_t first = from->copies.front();
    actions_[first] = [this, &made, shape = std::move(shape), first, pinned = from->pinned] {
      const Node& node = at(source_, first);
      copy_.close_to(node.parent);
      const Tensor& host = source_.tensors[source_.inputs(node)[0].index];
      AutogradTape tape(graph_, moved(node.seq_id));
      made = to_device(tape, graph_.new_tensor(host.dtype, graph_.cpu(), shape), pinned);
    };
  }

  TensorRef joined(const Fusion& fusion, std::uint32_t Bag::*field, std::int64_t sequence) {
    std::vector<TensorRef> pieces;
    for (const Bag& bag : fusion.bags) pieces.push_back(graph_.tensor_of_source(bag.*field));
    return cat(graph_, pieces, 0, sequence);
  }

  void look_up(State& state) {
    const Node& first = at(source_, state.fusion.bags.front().node);
    copy_.close_to(first.parent);
    const std::int64_t sequence = moved(first.seq_id);
    if (!state.indices.exists()) state.indices = joined(state.fusion, &Bag::indices, sequence);
    if (!state.offsets.exists()) state.offsets = joined(state.fusion, &Bag::offsets, sequence);
    state.tape = std::make_unique<AutogradTape>(graph_, sequence);
    state.vectors = table_batched_lookup(*state.tape, state.tables, state.fusion.batch,
                                         state.indices, state.offsets);
  }

  // The copied cat: one input in place of the vectors of all tables.
  void shorten_cat(const State& state) {
    ExecutionGraph& made = graph_.graph_being_made();
    const auto position = made.nodes.size() - 1;
    const Fusion& fusion = state.fusion;
    std::vector<Argument> inputs;
    const Argument list = made.arguments[made.nodes[position].inputs_begin];
    for (std::uint32_t i = 0; i < list.count; ++i) {
      const std::size_t first = fusion.first_input;
      if (i == first) inputs.push_back(graph_.tensor_argument(state.vectors));
      if (i < first || i >= first + fusion.bags.size()) {
        inputs.push_back(made.arguments[list.index + i]);
      }
    }
    const auto begin = static_cast<std::uint32_t>(made.arguments.size());
    made.arguments.insert(made.arguments.end(), inputs.begin(), inputs.end());
    Argument& shorter = made.arguments[made.nodes[position].inputs_begin];
    shorter.index = begin;
    shorter.count = static_cast<std::uint32_t>(inputs.size());
  }

  void cut_gradient(State& state) {
    const Node& function = at(source_, state.fusion.cat_function);
    copy_.close_to(state.fusion.cat_function);
    const TensorRef gradient = graph_.tensor_of_source(source_.inputs(function)[0].index);
    std::int64_t columns = 0;
    for (std::int64_t dim : state.tables.dims) columns += dim;
    state.gradient = narrow(graph_, gradient, 1, state.fusion.first_column, columns);
  }

  void go_back(State& state, std::int32_t function) {
    copy_.close_to(at(source_, function).parent);
    state.tape->run_one(state.vectors, state.gradient);
  }

  const ExecutionGraph& source_;
  const TableFusionRewrite& rewrite_;
  GraphCopy copy_;
  GraphBuilder& graph_;
  std::vector<bool> gone_;
  std::deque<State> states_;
  std::map<std::int32_t, Action> actions_, behind_;  // in place of a node, behind its copy
  std::set<std::int32_t> labels_;                    // steps that are written anew
  std::vector<std::int64_t> closed_;                 // sequence numbers that are gone
};

}  // namespace

Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& graph,
                                            const TableFusionRewrite& rewrite) {
  std::vector<Fusion> fusions;
  std::size_t bags = 0;
  for (const GraphIteration& iteration : iterations(graph)) {
    auto fusion = FusionFinder(graph, iteration).find();
    if (!fusion) return Unexpected{fusion.error()};
    bags = std::max(bags, fusion->bags.size());
    if (fusion->bags.size() > 1) fusions.push_back(std::move(*fusion));
  }
  if (fusions.empty()) {
    return refuse(
        fmt::format("expected at least two aten::embedding_bag in a step, found {}", bags));
  }
  return FusionWriter(graph, rewrite, fusions).write();
}

}  // namespace perfmodel
