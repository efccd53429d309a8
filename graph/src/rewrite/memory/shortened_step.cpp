#include "shortened_step.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "step/layers.hpp"
#include "step/tree_walk.hpp"
#include "step/unread_ops.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kFewestLayers = 8;

using Ids = std::unordered_map<std::int64_t, std::int64_t>;

/// Writes a step without a segment. Who read its output reads its input, and so for the gradients.
class SegmentRemover {
 public:
  SegmentRemover(const StepView& step, const Segment& segment)
      : graph_(step.graph()),
        pass_(step.backward()),
        gone_(graph_.nodes.size()),
        after_backward_(pass_.in_backward.rend() - std::ranges::find(pass_.in_backward.rbegin(),
                                                                     pass_.in_backward.rend(),
                                                                     true)) {
    for (const std::int32_t tree : segment.trees) mark_tree(graph_, tree, gone_);
    for (std::int32_t f = segment.functions_begin; f < segment.functions_end; ++f) {
      const BackwardFunction& function = pass_.functions[f];
      mark_tree(graph_, function.evaluate, gone_);
      if (function.accumulates()) lose_gradients(function.evaluate);
    }
    rename(graph_.tensors[segment.output], graph_.tensors[segment.inputs.front()]);
    const std::int32_t taker = segment.gradients.front().edges.back().to;
    rename(gradient_of(taker), gradient_of(segment.functions_begin));
  }

  ExecutionGraph write() {
    do {
      spreads_ = false;
      for (std::size_t i = after_backward_; i < gone_.size(); ++i) spread_loss(i);
    } while (spreads_);
    made_ = {.schema = graph_.schema,
             .source = graph_.source,
             .built = graph_.built,
             .allow_tf32 = graph_.allow_tf32,
             .process_id = graph_.process_id,
             .names = graph_.names,
             .comm_records = graph_.comm_records,
             .process_groups = graph_.process_groups};
    for (std::size_t i = 0; i < gone_.size(); ++i) {
      is_update_ = i >= after_backward_;
      if (!gone_[i]) write(graph_.nodes[i]);
    }
    index_graph(made_);
    return std::move(made_);
  }

 private:
  const Tensor& gradient_of(std::int32_t function) const {
    return graph_.tensors[graph_.inputs(pass_.functions[function].function).front().index];
  }
  void rename(const Tensor& from, const Tensor& to) {
    ids_[from.id] = to.id;
    storages_[from.storage_id] = to.storage_id;
  }
  void lose_gradients(std::int32_t tree) {
    for (std::int32_t i = tree; i <= last_below(graph_, tree); ++i) {
      for (const Argument& argument : graph_.inputs(i)) lose(argument);
      for (const Argument& argument : graph_.outputs(i)) lose(argument);
    }
  }
  bool is_lost(const Argument& argument) const {
    return argument.kind == Argument::Kind::kTensor &&
           lost_.contains(graph_.tensors[argument.index].id);
  }

  void lose(const Argument& argument) {
    if (argument.kind != Argument::Kind::kTensor) return;
    spreads_ |= lost_.insert(graph_.tensors[argument.index].id).second;
  }
  // By place, whether a list of an update has lost the parameter; null: it is no such list.
  std::vector<bool>* places_of(const Argument& list) {
    if (list.kind != Argument::Kind::kList || list.count == 0) return nullptr;
    const Argument::Kind kind = graph_.elements(list).front().kind;
    if (kind != Argument::Kind::kTensor && kind != Argument::Kind::kDouble) return nullptr;
    std::vector<bool>& places = places_[list.count];
    places.resize(list.count);
    return &places;
  }

  // An update that takes a lost tensor is lost, and so are its results. Updates of many parameters
  // in one call have lists of one length, with a place for each parameter.
  void spread_loss(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const std::array all = {graph_.inputs(node), graph_.outputs(node)};
    const auto loses = [&](auto arguments) {
      return std::ranges::any_of(arguments, [&](const Argument& one) { return is_lost(one); });
    };
    if ((node.parent >= 0 && gone_[node.parent]) || loses(all[0]) || loses(all[1])) {
      gone_[index] = true;
      for (const Argument& made : all[1]) lose(made);
      return;
    }
    for (const auto arguments : all) {
      for (const Argument& list : arguments) {
        std::vector<bool>* places = places_of(list);
        for (std::uint32_t i = 0; places && i < list.count; ++i) {
          const Argument& one = graph_.elements(list)[i];
          if ((*places)[i]) lose(one);
          if ((*places)[i] || !is_lost(one)) continue;
          spreads_ = (*places)[i] = true;
        }
      }
    }
  }

  void write(const Node& source) {
    Node node = source;
    std::tie(node.inputs_begin, node.inputs_count) = write(graph_.inputs(source));
    std::tie(node.outputs_begin, node.outputs_count) = write(graph_.outputs(source));
    made_.nodes.push_back(node);
  }

  /// Begin and number of the copies.
  std::pair<std::uint32_t, std::uint32_t> write(std::span<const Argument> arguments,
                                                const std::vector<bool>* places = nullptr) {
    std::vector<Argument> copies;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (places && (*places)[i]) continue;
      Argument argument = arguments[i];
      if (argument.kind == Argument::Kind::kTensor) argument.index = write(argument.index);
      if (argument.kind == Argument::Kind::kList) {
        const std::vector<bool>* lost = is_update_ ? places_of(argument) : nullptr;
        std::tie(argument.index, argument.count) = write(graph_.elements(argument), lost);
      }
      copies.push_back(argument);
    }
    const auto begin = static_cast<std::uint32_t>(made_.arguments.size());
    made_.arguments.insert(made_.arguments.end(), copies.begin(), copies.end());
    return {begin, static_cast<std::uint32_t>(copies.size())};
  }

  std::uint32_t write(std::uint32_t source) {
    const auto renamed = [](const Ids& ids, std::int64_t id) {
      const auto found = ids.find(id);
      return found == ids.end() ? id : found->second;
    };
    Tensor tensor = graph_.tensors[source];
    const auto shape = graph_.shape(tensor);
    tensor.id = renamed(ids_, tensor.id);
    tensor.storage_id = renamed(storages_, tensor.storage_id);
    tensor.shape_begin = static_cast<std::uint32_t>(made_.shape_pool.size());
    made_.shape_pool.insert(made_.shape_pool.end(), shape.begin(), shape.end());
    made_.tensors.push_back(tensor);
    return static_cast<std::uint32_t>(made_.tensors.size() - 1);
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::vector<bool> gone_;                             // by node
  std::size_t after_backward_;                         // node
  std::unordered_set<std::int64_t> lost_;              // tensors that nothing makes any more
  std::map<std::uint32_t, std::vector<bool>> places_;  // by length of the list
  bool spreads_ = false, is_update_ = false;
  Ids ids_, storages_;
  ExecutionGraph made_;
};

// Leaves out all layers but `kept`: the first ones and the last one.
std::optional<ExecutionGraph> with_layers(const StepView& step, const SegmentReader& segments,
                                          const LayerStack& stack, std::size_t kept) {
  Trees gone;
  for (std::size_t layer = kept - 1; layer + 1 < stack.size(); ++layer) {
    gone.insert(gone.end(), stack[layer].begin(), stack[layer].end());
  }
  const auto segment = segments.read(std::move(gone));
  if (!segment || segment->inputs.size() != 1 || segment->gradients.size() != 1) {
    return std::nullopt;
  }
  ExecutionGraph made = SegmentRemover(step, *segment).write();
  if (!StepView(made).optimizers()) return std::nullopt;
  return made;
}

}  // namespace

std::optional<ShortenedStep> shortened_step(const ExecutionGraph& graph) {
  const StepView step(graph);
  if (!step.check("fewer layers", {.backward = true})) return std::nullopt;
  const SegmentReader segments(step);
  const auto stacks = layers(step, segments);
  if (!stacks) return std::nullopt;
  const LayerStack& stack = *std::ranges::max_element(*stacks, {}, &LayerStack::size);
  if (stack.size() < kFewestLayers) return std::nullopt;
  auto three = with_layers(step, segments, stack, 3), four = with_layers(step, segments, stack, 4);
  if (!three || !four) return std::nullopt;
  return ShortenedStep{stack.size(), std::move(*three), std::move(*four)};
}

}  // namespace perfmodel
