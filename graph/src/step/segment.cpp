#include "segment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "tree_walk.hpp"

namespace perfmodel {
namespace {

template <class... Arguments>
Unexpected no_segment(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return fail(ErrorCode::kImpossible, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// Mentions of different tensors.
void add_mention(const ExecutionGraph& graph, std::vector<std::uint32_t>& mentions,
                 std::uint32_t mention) {
  const auto same = [&](std::uint32_t other) {
    return graph.tensors[other].id == graph.tensors[mention].id;
  };
  if (std::ranges::none_of(mentions, same)) mentions.push_back(mention);
}

}  // namespace

std::string describe(const ExecutionGraph& graph, const Segment& segment) {
  return fmt::format("the segment that begins with {} (node {})", graph.name(segment.begin),
                     graph.node(segment.begin).id);
}

SegmentReader::SegmentReader(const StepView& step)
    : graph_(step.graph()),
      pass_(step.backward()),
      forward_end_(forward_end(pass_)),
      functions_(functions_by_sequence(pass_)) {
  for (std::int32_t i = 0; i < forward_end_; ++i) {
    for_each_produced(i, [&](std::uint32_t tensor, std::int64_t producer) {
      uses_[producer].push_back({.node = i, .tensor = tensor});
    });
  }
  takers_.resize(pass_.functions.size());
  for (const GradientEdge& edge : pass_.edges) takers_[edge.from].push_back(edge.to);
}

// Input tensors of a node that an op with a gradient made.
template <class Visit>
void SegmentReader::for_each_produced(std::int32_t node, Visit&& visit) const {
  auto producer = pass_.input_producers[node].begin();
  const auto end = pass_.input_producers[node].end();
  for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
    if (producer == end) return;
    const std::int64_t number = *producer++;
    if (number >= 0) visit(static_cast<std::uint32_t>(&tensor - graph_.tensors.data()), number);
  });
}

Result<Segment> SegmentReader::read(Trees trees) const {
  Segment segment{.trees = std::move(trees)};
  segment.begin = segment.trees.front();
  segment.end = last_below(graph_, segment.trees.back()) + 1;
  const std::int32_t thread = graph_.node(segment.begin).thread;
  for (std::int32_t i = segment.begin; i < segment.end && segment.first < 0; ++i) {
    if (graph_.node(i).thread == thread) segment.first = graph_.node(i).seq_id;
  }
  segment.behind = sequence_behind(segment, thread);
  if (segment.first < 0 || segment.behind <= segment.first) {
    return no_segment("expected ops with a gradient in {}, found none", describe(graph_, segment));
  }
  PERFMODEL_TRY(makers, read_inputs(segment));
  if (auto good = read_output(segment); !good) return Unexpected{good.error()};
  if (auto good = read_functions(segment); !good) return Unexpected{good.error()};
  if (auto good = read_gradients(segment, *makers); !good) return Unexpected{good.error()};
  return segment;
}

std::int64_t SegmentReader::sequence_behind(const Segment& segment, std::int32_t thread) const {
  for (std::int32_t i = segment.end; i < forward_end_; ++i) {
    const Node& node = graph_.node(i);
    if (node.seq_id >= 0 && node.thread == thread) return node.seq_id;
  }
  return pass_.last_sequence + 1;
}

// Gives the numbers of the ops that made them.
Result<std::vector<std::int64_t>> SegmentReader::read_inputs(Segment& segment) const {
  std::vector<std::int64_t> makers;
  for (std::int32_t i = segment.begin; i < segment.end; ++i) {
    if (graph_.node(i).thread != graph_.node(segment.begin).thread) continue;
    for_each_produced(i, [&](std::uint32_t tensor, std::int64_t producer) {
      if (producer >= segment.first) return;
      const std::size_t known = segment.inputs.size();
      add_mention(graph_, segment.inputs, tensor);
      if (segment.inputs.size() > known) add_once(makers, producer);
    });
  }
  if (segment.inputs.empty()) {
    return no_segment("expected an input with a gradient for {}, found none",
                      describe(graph_, segment));
  }
  const std::int32_t writes = writes_input(segment);
  if (writes < 0) return makers;
  return no_segment("expected {} to leave its inputs as they are, found {} (node {})",
                    describe(graph_, segment), graph_.name(writes), graph_.node(writes).id);
}

// A node that writes into an input; -1: none. Autograd refuses that for detached inputs.
std::int32_t SegmentReader::writes_input(const Segment& segment) const {
  for (std::int32_t i = segment.begin; i < segment.end; ++i) {
    const auto inputs = graph_.inputs(i);
    if (!graph_.name(i).ends_with('_') || inputs.empty()) continue;
    if (inputs[0].kind != Argument::Kind::kTensor) continue;
    const std::int64_t storage = graph_.tensors[inputs[0].index].storage_id;
    const auto has_storage = [&](std::uint32_t input) {
      return storage != 0 && graph_.tensors[input].storage_id == storage;
    };
    if (std::ranges::any_of(segment.inputs, has_storage)) return i;
  }
  return -1;
}

Result<void> SegmentReader::read_output(Segment& segment) const {
  std::vector<std::uint32_t> outputs;
  const auto behind = uses_.lower_bound(segment.behind);
  for (auto at = uses_.lower_bound(segment.first); at != behind; ++at) {
    for (const Use& use : at->second) {
      if (use.node >= segment.end) add_mention(graph_, outputs, use.tensor);
    }
  }
  if (outputs.size() != 1) {
    return no_segment("expected one tensor with a gradient that leaves {}, found {}",
                      describe(graph_, segment), outputs.size());
  }
  segment.output = outputs.front();
  return {};
}

// Functions of the segment's ops and of its parameters must have run one after the other.
Result<void> SegmentReader::read_functions(Segment& segment) const {
  const auto all = static_cast<std::int32_t>(pass_.functions.size());
  std::int32_t begin = all, end = 0;
  const auto behind = functions_.lower_bound(segment.behind);
  for (auto at = functions_.lower_bound(segment.first); at != behind; ++at) {
    begin = std::min(begin, at->second);
    end = std::max(end, at->second + 1);
  }
  if (begin == all) {
    return no_segment("expected backward functions of {}, found none", describe(graph_, segment));
  }
  for (; end < all && pass_.functions[end].accumulates(); ++end) {
    const auto edges = edges_to(pass_, end);
    if (edges.empty()) break;
    if (!segment.has_sequence(pass_.functions[edges.back().from].sequence)) break;
  }
  segment.functions_begin = begin;
  segment.functions_end = end;
  for (std::int32_t f = begin; f < end; ++f) {
    const BackwardFunction& function = pass_.functions[f];
    if (!segment.has_sequence(function.sequence) && !function.accumulates()) {
      return no_segment(
          "expected the backward functions of {} one after the other, found {} (node {}) between "
          "them",
          describe(graph_, segment), graph_.name(function.function),
          graph_.node(function.function).id);
    }
    const std::int32_t shared = shared_parameter(segment, f);
    if (shared < 0) continue;
    return no_segment(
        "expected parameters that {} has for itself, found one whose gradient comes from outside "
        "too (node {})",
        describe(graph_, segment), graph_.node(pass_.functions[shared].function).id);
  }
  return {};
}

// A function that sums gradients of a parameter from inside and from outside; -1: none.
std::int32_t SegmentReader::shared_parameter(const Segment& segment, std::int32_t function) const {
  const auto inside = [&](std::int32_t f) {
    return segment.has_sequence(pass_.functions[f].sequence);
  };
  if (!inside(function)) {
    const auto edges = edges_to(pass_, function);
    return std::ranges::all_of(edges, inside, &GradientEdge::from) ? -1 : function;
  }
  for (const std::int32_t taker : takers_[function]) {
    const bool own = taker >= segment.functions_begin && taker < segment.functions_end;
    if (pass_.functions[taker].accumulates() && !own) return taker;
  }
  return -1;
}

// A function takes one gradient per output of its op, each a sum that begins without one.
Result<void> SegmentReader::read_gradients(Segment& segment,
                                           const std::vector<std::int64_t>& makers) const {
  for (const std::int64_t maker : makers) {
    const auto taker = functions_.find(maker);
    if (taker == functions_.end()) continue;
    bool begins = true;
    for (const GradientEdge& edge : edges_to(pass_, taker->second)) {
      begins |= edge.sum < 0;
      if (!segment.has_sequence(pass_.functions[edge.from].sequence)) continue;
      if (begins) segment.gradients.push_back({.edges = {}, .sum_before = edge.sum});
      begins = false;
      segment.gradients.back().edges.push_back(edge);
    }
  }
  if (segment.gradients.empty()) {
    return no_segment("expected a gradient of {} for what made its input, found none",
                      describe(graph_, segment));
  }
  std::ranges::stable_sort(segment.gradients, {},
                           [](const InputGradient& part) { return part.edges.back().from; });
  return {};
}

}  // namespace perfmodel
