#include "checkpoint_segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "layer_runs.hpp"
#include "ops/catalogue.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Trees = std::vector<std::int32_t>;

class SegmentFinder {
 public:
  SegmentFinder(const ExecutionGraph& graph, const BackwardPass& pass)
      : graph_(graph), pass_(pass) {
    // Where the forward pass ends: what follows the first function is the optimizer's.
    const auto first = std::find(pass.in_backward.begin(), pass.in_backward.end(), true);
    forward_end_ = static_cast<std::int32_t>(first - pass.in_backward.begin());
    for (std::int32_t i = 0; i < forward_end_; ++i) {
      for_each_produced(i, [&](const Tensor& tensor, std::int64_t producer) {
        uses_[producer].push_back({.node = i, .tensor = entry(tensor)});
      });
    }
    edges_to_.resize(pass.functions.size());
    takers_.resize(pass.functions.size());
    for (const GradientEdge& edge : pass.edges) {
      edges_to_[edge.to].push_back(edge);
      takers_[edge.from].push_back(edge.to);
    }
    for (std::size_t f = 0; f < pass.functions.size(); ++f) {
      if (!pass.functions[f].accumulates()) {
        by_sequence_[pass.functions[f].sequence] = static_cast<std::int32_t>(f);
      }
    }
  }

  Result<std::vector<Segment>> find(const CheckpointOptions& options) {
    if (options.label.empty()) return of_layers(options);
    if (!options.layers) return of_labels(options.label);
    return refuse_checkpointing("expected a number of layers or regions, found both");
  }

  Result<std::vector<Segment>> of_parts(const std::vector<Trees>& parts) const {
    std::vector<Segment> segments;
    std::optional<Error> reason;
    for (const Trees& part : parts) {
      auto made = segment(part);
      if (made) {
        segments.push_back(std::move(*made));
      } else if (!reason) {
        reason = made.error();
      }
    }
    if (segments.empty() && reason) return Unexpected{*reason};
    return segments;
  }

 private:
  struct Use {
    std::int32_t node = 0;
    std::uint32_t tensor = 0;
  };

  const BackwardFunction& function(std::int32_t index) const { return pass_.functions[index]; }
  std::uint32_t entry(const Tensor& tensor) const {
    return static_cast<std::uint32_t>(&tensor - graph_.tensors.data());
  }

  // Input tensors of a node that an op with a gradient made.
  template <class Visit>
  void for_each_produced(std::int32_t index, Visit&& visit) const {
    const auto& producers = pass_.input_producers[index];
    std::size_t k = 0;
    for_each_tensor(graph_, graph_.inputs(index), [&](const Tensor& tensor) {
      const std::int64_t producer = k < producers.size() ? producers[k] : -1;
      ++k;
      if (producer >= 0) visit(tensor, producer);
    });
  }

  Result<std::vector<Segment>> of_labels(const std::string& text) const {
    std::vector<Segment> segments;
    std::int32_t end = 0;  // of the last one: regions inside it are part of it
    for (std::int32_t i = 0; i < forward_end_; ++i) {
      const Node& n = graph_.node(i);
      if (i < end || !n.is_label || n.is_structural || n.children_count == 0) continue;
      if (graph_.name(n).find(text) == std::string_view::npos) continue;
      const std::int32_t handle = handle_of(i);
      auto made = segment(handle < end ? Trees{i} : Trees{handle, i});
      if (!made) return Unexpected{made.error()};
      segments.push_back(std::move(*made));
      end = last_below(graph_, i) + 1;
    }
    if (segments.empty()) {
      return refuse_checkpointing(fmt::format(
          "expected a region of the forward pass whose name contains \"{}\", found none", text));
    }
    return segments;
  }

  // Before 2.0 a region makes a tensor in front of itself; -1: no such op.
  std::int32_t handle_of(std::int32_t region) const {
    if (graph_.node(region).parent < 0) return -1;
    std::int32_t before = -1;
    for (std::int32_t sibling : graph_.children(graph_.node(region).parent)) {
      if (sibling >= region) break;
      before = sibling;
    }
    if (before < 0 || !is_zeros(graph_.name(before))) return -1;
    bool handle = false;
    for_each_tensor(graph_, graph_.outputs(before), [&](const Tensor& tensor) {
      handle = tensor.on_cpu() && tensor.numel == 1 && tensor.rank == 1;
    });
    return handle ? before : -1;
  }

  Result<std::vector<Segment>> of_layers(const CheckpointOptions& options) const {
    const Trees ops = forward_ops();
    std::vector<OpSignature> signatures;
    for (std::int32_t op : ops) signatures.push_back(op_signature(graph_, op));
    const std::vector<LayerRun> runs = layer_runs(signatures);
    if (runs.empty())
      return refuse_checkpointing("expected layers that repeat in the forward pass, found none");
    std::vector<Segment> segments;
    std::string reason;
    std::size_t end = 0;  // of the last layer
    std::size_t wanted = static_cast<std::size_t>(options.layers.value_or(0)), found = 0;
    for (const LayerRun& run : runs) {
      auto layers = layers_of(run, ops, signatures, end);
      if (!layers) {
        if (reason.empty()) reason = layers.error().message;
        continue;
      }
      end = layers->back().end;
      found += layers->size();
      if (options.layers) {
        layers->resize(std::min(layers->size(), wanted));
        wanted -= layers->size();
        if (layers->empty()) continue;
      }
      auto made = merge(*layers, ops, options.every);
      if (!made) return made;
      std::move(made->begin(), made->end(), std::back_inserter(segments));
    }
    if (wanted > 0 && found > 0) {
      return refuse_checkpointing(fmt::format(
          "expected at most the {} layers that there are, found {}", found, *options.layers));
    }
    if (!segments.empty()) return segments;
    return Unexpected{Error{.code = ErrorCode::kImpossible, .message = reason}};
  }

  struct Layer {
    std::size_t begin = 0, end = 0;  // ops
  };

  Trees trees(const Trees& ops, std::size_t begin, std::size_t end) const {
    return {ops.begin() + static_cast<std::ptrdiff_t>(begin),
            ops.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  // A layer may begin anywhere in the period where that makes good segments; the first place that
  // makes most of them is taken. The first of all layers may be none: its input has no gradient.
  Result<std::vector<Layer>> layers_of(const LayerRun& run, const Trees& ops,
                                       const std::vector<OpSignature>& signatures,
                                       std::size_t last_end) const {
    std::vector<Layer> most;
    std::string reason;
    for (std::size_t shift = 0; shift + run.period <= run.length; ++shift) {
      if (shift == 2 * run.period || (shift == run.period && !most.empty())) break;
      auto layers = layers_at(run, shift, ops, signatures, last_end);
      if (!layers) {
        if (reason.empty()) reason = layers.error().message;
      } else if (layers->size() > most.size()) {
        most = std::move(*layers);
      }
    }
    if (!most.empty()) return most;
    return Unexpected{Error{.code = ErrorCode::kImpossible, .message = reason}};
  }

  // Each layer takes what the one before it gives; the three projections of an attention do not.
  Result<std::vector<Layer>> layers_at(const LayerRun& run, std::size_t shift, const Trees& ops,
                                       const std::vector<OpSignature>& signatures,
                                       std::size_t last_end) const {
    const std::size_t begin = run.begin + shift, count = (run.length - shift) / run.period;
    const auto first = segment(trees(ops, begin, begin + run.period));
    if (!first) return Unexpected{first.error()};
    std::vector<Layer> layers;
    const std::size_t before = longer_layer_before(signatures, begin, run.period, begin);
    if (before < begin && before >= last_end && follows(*first, trees(ops, before, begin))) {
      layers.push_back({before, begin});
    }
    for (std::size_t k = 0; k < count; ++k) {
      layers.push_back({begin + k * run.period, begin + (k + 1) * run.period});
    }
    const Layer last = layers.back();
    const auto made = segment(trees(ops, last.begin, last.end));
    if (!made) return Unexpected{made.error()};
    if (layers.size() < 2 ||
        (count > 1 && !follows(*made, trees(ops, last.begin - run.period, last.begin)))) {
      return refuse_checkpointing(
          fmt::format("expected layers that take what the layer before them gives, found others "
                      "behind {}",
                      about(*first)));
    }
    return layers;
  }

  bool follows(const Segment& next, Trees before) const {
    const auto made = segment(std::move(before));
    return made && std::any_of(next.inputs.begin(), next.inputs.end(), [&](std::uint32_t input) {
             return graph_.tensors[input].id == graph_.tensors[made->output].id;
           });
  }

  Result<std::vector<Segment>> merge(const std::vector<Layer>& layers, const Trees& ops,
                                     int every) const {
    const auto count = static_cast<double>(layers.size());
    const auto step = static_cast<std::size_t>(every > 0 ? every : std::lround(std::sqrt(count)));
    std::vector<Segment> segments;
    for (std::size_t layer = 0; layer < layers.size(); layer += step) {
      const std::size_t last = std::min(layer + step, layers.size()) - 1;
      auto made = segment(trees(ops, layers[layer].begin, layers[last].end));
      if (!made) return Unexpected{made.error()};
      segments.push_back(std::move(*made));
    }
    return segments;
  }

  // The children of that node under which most of the forward pass stands.
  Trees forward_ops() const {
    std::unordered_map<std::int32_t, Trees> by_parent;
    for (std::int32_t i = 0; i < forward_end_; ++i) {
      const Node& n = graph_.node(i);
      if (n.is_structural || n.parent < 0 || !graph_.node(n.parent).is_label) continue;
      by_parent[n.parent].push_back(i);
    }
    Trees most;
    for (auto& [parent, ops] : by_parent) {
      const bool first = ops.size() == most.size() && !ops.empty() && ops.front() < most.front();
      if (ops.size() > most.size() || first) most = std::move(ops);
    }
    return most;
  }

  Result<Segment> segment(Trees trees) const {
    Segment made{.trees = std::move(trees)};
    const std::int32_t begin = made.trees.front(), end = last_below(graph_, made.trees.back());
    const std::int32_t thread = graph_.node(begin).thread;
    for (std::int32_t i = begin; i <= end && made.first < 0; ++i) {
      if (graph_.node(i).thread == thread) made.first = graph_.node(i).seq_id;
    }
    made.behind = number_behind(end, thread);
    if (made.first < 0 || made.behind <= made.first) {
      return refuse_checkpointing(
          fmt::format("expected ops with a gradient in {}, found none", about(made)));
    }
    std::vector<std::int64_t> makers;
    if (auto good = find_tensors(made, makers, begin, end); !good) return Unexpected{good.error()};
    if (auto good = find_functions(made); !good) return Unexpected{good.error()};
    if (auto good = find_gradients(made, makers); !good) return Unexpected{good.error()};
    return made;
  }

  std::string about(const Segment& segment) const {
    const Node& first = graph_.node(segment.trees.front());
    return fmt::format("the segment that begins with {} (node {})", graph_.name(first), first.id);
  }

  std::int64_t number_behind(std::int32_t end, std::int32_t thread) const {
    for (std::int32_t i = end + 1; i < forward_end_; ++i) {
      if (graph_.node(i).seq_id >= 0 && graph_.node(i).thread == thread)
        return graph_.node(i).seq_id;
    }
    return pass_.last_sequence + 1;
  }

  Result<void> find_tensors(Segment& made, std::vector<std::int64_t>& makers, std::int32_t begin,
                            std::int32_t end) const {
    const std::int32_t thread = graph_.node(begin).thread;
    const auto known = [&](std::uint32_t tensor) {
      return std::any_of(made.inputs.begin(), made.inputs.end(), [&](std::uint32_t other) {
        return graph_.tensors[other].id == graph_.tensors[tensor].id;
      });
    };
    for (std::int32_t i = begin; i <= end; ++i) {
      if (graph_.node(i).thread != thread) continue;
      for_each_produced(i, [&](const Tensor& tensor, std::int64_t producer) {
        if (producer >= made.first || known(entry(tensor))) return;
        made.inputs.push_back(entry(tensor));
        if (std::find(makers.begin(), makers.end(), producer) == makers.end()) {
          makers.push_back(producer);
        }
      });
    }
    if (made.inputs.empty()) {
      return refuse_checkpointing(
          fmt::format("expected an input with a gradient for {}, found none", about(made)));
    }
    if (const std::int32_t writes = writes_input(made, begin, end); writes >= 0) {
      return refuse_checkpointing(
          fmt::format("expected {} to leave its inputs as they are, found {} (node {})",
                      about(made), graph_.name(writes), graph_.node(writes).id));
    }
    std::vector<std::uint32_t> outputs;
    const auto behind = uses_.lower_bound(made.behind);
    for (auto at = uses_.lower_bound(made.first); at != behind; ++at) {
      for (const Use& use : at->second) {
        const bool is_new = std::none_of(outputs.begin(), outputs.end(), [&](std::uint32_t other) {
          return graph_.tensors[other].id == graph_.tensors[use.tensor].id;
        });
        if (use.node > end && is_new) outputs.push_back(use.tensor);
      }
    }
    if (outputs.size() != 1) {
      return refuse_checkpointing(
          fmt::format("expected one tensor with a gradient that leaves {}, found {}", about(made),
                      outputs.size()));
    }
    made.output = outputs.front();
    return {};
  }

  // A node that writes into an input; -1: none. Autograd refuses that for the detached inputs.
  std::int32_t writes_input(const Segment& made, std::int32_t begin, std::int32_t end) const {
    for (std::int32_t i = begin; i <= end; ++i) {
      const auto inputs = graph_.inputs(i);
      if (!graph_.name(i).ends_with('_') || inputs.empty()) continue;
      if (inputs[0].kind != Argument::Kind::kTensor) continue;
      const std::int64_t storage = graph_.tensors[inputs[0].index].storage_id;
      for (std::uint32_t input : made.inputs) {
        if (storage != 0 && graph_.tensors[input].storage_id == storage) return i;
      }
    }
    return -1;
  }

  bool inside(const Segment& made, std::int32_t f) const {
    const std::int64_t number = function(f).sequence;
    return number >= made.first && number < made.behind;
  }

  // Those of the segment's ops and of its parameters, which must have run one after the other.
  Result<void> find_functions(Segment& made) const {
    std::int32_t begin = -1, end = -1;
    const auto behind = by_sequence_.lower_bound(made.behind);
    for (auto at = by_sequence_.lower_bound(made.first); at != behind; ++at) {
      begin = begin < 0 ? at->second : std::min(begin, at->second);
      end = std::max(end, at->second + 1);
    }
    if (begin < 0) {
      return refuse_checkpointing(
          fmt::format("expected backward functions of {}, found none", about(made)));
    }
    const auto all = static_cast<std::int32_t>(pass_.functions.size());
    for (; end < all && function(end).accumulates(); ++end) {
      const auto& edges = edges_to_[end];
      if (edges.empty() || !inside(made, edges.back().from)) break;
    }
    made.functions_begin = begin;
    made.functions_end = end;
    for (std::int32_t f = begin; f < end; ++f) {
      if (auto good = check_function(made, f); !good) return good;
    }
    return {};
  }

  Result<void> check_function(const Segment& made, std::int32_t f) const {
    const auto shared = [&](std::int32_t parameter) {
      return refuse_checkpointing(fmt::format(
          "expected parameters that {} has for itself, found one whose gradient comes from outside "
          "too (node {})",
          about(made), graph_.node(function(parameter).function).id));
    };
    if (inside(made, f)) {
      for (std::int32_t taker : takers_[f]) {
        const bool own = taker >= made.functions_begin && taker < made.functions_end;
        if (function(taker).accumulates() && !own) return shared(taker);
      }
      return {};
    }
    if (!function(f).accumulates()) {
      const Node& found = graph_.node(function(f).function);
      return refuse_checkpointing(
          fmt::format("expected the backward functions of {} one after the other, found {} (node "
                      "{}) between them",
                      about(made), graph_.name(found), found.id));
    }
    for (const GradientEdge& edge : edges_to_[f]) {
      if (!inside(made, edge.from)) return shared(f);
    }
    return {};
  }

  // `makers`: numbers of the ops that made the inputs.
  Result<void> find_gradients(Segment& made, const std::vector<std::int64_t>& makers) const {
    for (std::int64_t maker : makers) {
      if (const auto at = by_sequence_.find(maker); at != by_sequence_.end()) {
        add_gradients(made, at->second);
      }
    }
    if (made.gradients.empty()) {
      return refuse_checkpointing(fmt::format(
          "expected a gradient of {} for what made its input, found none", about(made)));
    }
    std::stable_sort(made.gradients.begin(), made.gradients.end(),
                     [](const InputGradient& a, const InputGradient& b) {
                       return a.edges.back().from < b.edges.back().from;
                     });
    return {};
  }

  // A function takes one gradient per output of its op, each a sum that begins without one.
  void add_gradients(Segment& made, std::int32_t taker) const {
    bool begins = true;
    for (const GradientEdge& edge : edges_to_[taker]) {
      begins |= edge.sum < 0;
      if (!inside(made, edge.from)) continue;
      if (begins) made.gradients.push_back({.edges = {}, .sum_before = edge.sum});
      begins = false;
      made.gradients.back().edges.push_back(edge);
    }
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::int32_t forward_end_ = 0;
  std::map<std::int64_t, std::vector<Use>> uses_;  // by number of the op that made the tensor
  std::vector<std::vector<GradientEdge>> edges_to_;
  std::vector<std::vector<std::int32_t>> takers_;     // of what a function makes
  std::map<std::int64_t, std::int32_t> by_sequence_;  // functions
};

}  // namespace

Unexpected refuse_checkpointing(std::string message) {
  return fail(ErrorCode::kImpossible, "checkpointing: " + std::move(message));
}

Result<std::vector<Segment>> checkpoint_segments(const ExecutionGraph& graph,
                                                 const BackwardPass& pass,
                                                 const CheckpointOptions& options) {
  return SegmentFinder(graph, pass).find(options);
}

Result<std::vector<Segment>> checkpoint_segments(const ExecutionGraph& graph,
                                                 const BackwardPass& pass,
                                                 const std::vector<Trees>& parts) {
  return SegmentFinder(graph, pass).of_parts(parts);
}

}  // namespace perfmodel
