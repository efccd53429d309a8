#include "backward_pass.hpp"

#include <algorithm>
#include <deque>
#include <string_view>
#include <unordered_map>

#include "by_id.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kEngineCall = "autograd::engine::evaluate_function";

class Analysis {
 public:
  explicit Analysis(const ExecutionGraph& graph)
      : graph_(graph), gradient_of_(graph.tensors.size(), -1) {
    const std::size_t count = graph.nodes.size();
    recorded_.resize(count, -1);
    pass_.in_backward.resize(count);
    pass_.input_producers.resize(count);
  }

  BackwardPass run() {
    find_functions();
    find_producers();
    for (std::size_t i = 0; i < pass_.functions.size(); ++i) {
      follow(static_cast<std::int32_t>(i));
    }
    return std::move(pass_);
  }

 private:
  // Functions through whose hands a gradient went, last one last; or, for a sum, its addends.
  struct Gradient {
    std::vector<std::int32_t> holders;
    std::vector<GradientEdge> addends;  // `to` is not known yet; from -1: of these holders
  };

  void find_functions() {
    std::unordered_map<std::int64_t, std::int32_t> forward;  // by sequence number
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      const bool below = n.parent >= 0 && pass_.in_backward[n.parent];
      pass_.in_backward[i] =
          below || n.scope == Scope::kBackward || is_evaluate_function(graph_, n);
      pass_.last_sequence = std::max(pass_.last_sequence, n.seq_id);
      if (n.scope == Scope::kBackward) {
        add_function(static_cast<std::int32_t>(i), forward);
      } else if (n.seq_id >= 0) {
        forward[n.seq_id] = static_cast<std::int32_t>(i);
      }
    }
  }

  void add_function(std::int32_t index,
                    const std::unordered_map<std::int64_t, std::int32_t>& forward) {
    const Node& n = graph_.node(index);
    BackwardFunction made{.evaluate = index, .function = index, .sequence = n.seq_id};
    if (n.parent >= 0 && is_evaluate_function(graph_, graph_.node(n.parent)))
      made.evaluate = n.parent;
    if (const auto at = forward.find(n.seq_id); n.seq_id >= 0 && at != forward.end()) {
      made.forward = at->second;
      recorded_[at->second] = n.seq_id;
    }
    pass_.functions.push_back(made);
  }

  // Tensors of ops that autograd did not record have no producer, views inside an op that it did
  // are the op's.
  void find_producers() {
    ById<std::int64_t> producer(graph_.tensors.size(), -1);  // tensor id -> sequence
    std::vector<bool> inside(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (pass_.in_backward[i] || n.is_label) continue;
      std::vector<std::int64_t>& producers = pass_.input_producers[i];
      producers.reserve(n.inputs_count);
      for_each_tensor(graph_, graph_.inputs(n),
                      [&](const Tensor& tensor) { producers.push_back(producer[tensor.id]); });
      const std::int64_t recorded = recorded_[i];
      const bool parent_inside = n.parent >= 0 && inside[n.parent];
      inside[i] = parent_inside || recorded >= 0;
      const bool may_lose = !parent_inside && recorded < 0;
      if (may_lose) note_inputs(n);
      for_each_tensor(graph_, graph_.outputs(n), [&](const Tensor& tensor) {
        if (is_undefined(tensor)) return;  // flash attention leaves parts unfilled
        if (recorded >= 0 || (may_lose && !is_noted(tensor))) producer[tensor.id] = recorded;
      });
    }
  }

  void note_inputs(const Node& node) {
    noted_.clear();
    for_each_tensor(graph_, graph_.inputs(node),
                    [&](const Tensor& tensor) { noted_.push_back(tensor.id); });
  }
  bool is_noted(const Tensor& tensor) const {
    return std::find(noted_.begin(), noted_.end(), tensor.id) != noted_.end();
  }

  // Known gradients do not move, whichever are found later.
  Gradient& gradient(std::int64_t id) {
    std::int32_t& at = gradient_of_[id];
    if (at < 0) {
      at = static_cast<std::int32_t>(gradients_.size());
      gradients_.emplace_back();
    }
    return gradients_[at];
  }

  void follow(std::int32_t index) {
    const BackwardFunction function = pass_.functions[index];
    for_each_tensor(graph_, graph_.inputs(function.function),
                    [&](const Tensor& tensor) { take(index, tensor); });
    produce(index, function.function);
    bool behind = false;
    for (std::int32_t child : graph_.children(function.evaluate)) {
      if (behind && !add(index, child)) produce(index, child);
      behind |= child == function.function;
    }
  }

  // Function `to` takes gradient `taken`.
  void take(std::int32_t to, const Tensor& taken) {
    Gradient& passed = gradient(taken.id);  // it may be handed on as it is
    if (passed.addends.empty()) {
      connect({.from = holder(passed.holders, to), .to = to, .tensor = entry(taken)});
    }
    for (GradientEdge edge : passed.addends) {
      if (edge.from < 0) edge.from = holder(first_holders_[edge.tensor], to);
      edge.to = to;
      connect(edge);
    }
    if (!passed.addends.empty()) passed = {};
    passed.holders.push_back(to);
  }

  std::uint32_t entry(const Tensor& tensor) const {
    return static_cast<std::uint32_t>(&tensor - graph_.tensors.data());
  }

  void connect(const GradientEdge& edge) {
    if (edge.from >= 0) pass_.edges.push_back(edge);
  }

  // The last of `holders` whose forward op took the result of the op of `to`.
  std::int32_t holder(const std::vector<std::int32_t>& holders, std::int32_t to) const {
    const std::int64_t made_by = pass_.functions[to].sequence;
    for (auto at = holders.rbegin(); at != holders.rend(); ++at) {
      const std::int32_t forward = pass_.functions[*at].forward;
      if (*at == to || forward < 0) continue;
      const auto& producers = pass_.input_producers[forward];
      if (std::find(producers.begin(), producers.end(), made_by) != producers.end()) return *at;
    }
    return -1;
  }

  // All that comes out of a tree of nodes is in the hands of function `index`.
  void produce(std::int32_t index, std::int32_t tree) {
    const Node& n = graph_.node(tree);
    if (tree != pass_.functions[index].function) {
      if (n.outputs_count > 0) note_inputs(n);
      for_each_tensor(graph_, graph_.outputs(n), [&](const Tensor& tensor) {
        Gradient& made = gradient(tensor.id);
        // A tensor that is handed through (resolve_conj) keeps its other holders.
        if (!is_noted(tensor)) {
          made.holders.clear();
          made.addends.clear();
        }
        if (made.addends.empty()) made.holders.push_back(index);
      });
    }
    for (std::int32_t child : graph_.children(n)) produce(index, child);
  }

  // Whether `child` adds a gradient of function `index` to one that was there before.
  bool add(std::int32_t index, std::int32_t child) {
    const Node& n = graph_.node(child);
    const auto inputs = graph_.inputs(n), outputs = graph_.outputs(n);
    if (!is_sum(graph_.name(n))) return false;
    if (inputs.size() < 2 || outputs.empty()) return false;
    for (const Argument& argument : {inputs[0], inputs[1], outputs[0]}) {
      if (argument.kind != Argument::Kind::kTensor) return false;
    }
    const std::int64_t before = graph_.tensors[inputs[0].index].id;
    const std::int64_t sum = graph_.tensors[outputs[0].index].id;
    Gradient made;
    made.addends = gradient(before).addends;
    if (made.addends.empty()) {
      first_holders_[inputs[0].index] = gradient(before).holders;
      made.addends.push_back({.from = -1, .to = -1, .tensor = inputs[0].index});
    }
    made.addends.push_back({.from = index, .to = -1, .tensor = inputs[1].index, .sum = child});
    gradient(sum) = std::move(made);
    return true;
  }

  const ExecutionGraph& graph_;
  BackwardPass pass_;
  std::vector<std::int64_t> recorded_;  // sequence by forward node; -1: none
  std::deque<Gradient> gradients_;
  ById<std::int32_t> gradient_of_;   // by tensor id; -1: none
  std::vector<std::int64_t> noted_;  // ids of the tensors that a node takes
  std::unordered_map<std::uint32_t, std::vector<std::int32_t>> first_holders_;  // by tensor entry
};

}  // namespace

bool is_evaluate_function(const ExecutionGraph& graph, const Node& node) {
  return graph.name(node).starts_with(kEngineCall);
}

BackwardPass backward_pass(const ExecutionGraph& graph) { return Analysis(graph).run(); }

std::int32_t forward_end(const BackwardPass& pass) {
  const auto first = std::ranges::find(pass.in_backward, true);
  return static_cast<std::int32_t>(first - pass.in_backward.begin());
}

std::map<std::int64_t, std::int32_t> functions_by_sequence(const BackwardPass& pass) {
  std::map<std::int64_t, std::int32_t> functions;
  for (std::size_t f = 0; f < pass.functions.size(); ++f) {
    const BackwardFunction& function = pass.functions[f];
    if (!function.accumulates()) functions[function.sequence] = static_cast<std::int32_t>(f);
  }
  return functions;
}

std::span<const GradientEdge> edges_to(const BackwardPass& pass, std::int32_t function) {
  const auto first = std::ranges::lower_bound(pass.edges, function, {}, &GradientEdge::to);
  return {first,
          std::ranges::upper_bound(first, pass.edges.end(), function, {}, &GradientEdge::to)};
}

}  // namespace perfmodel
