#include "layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {
namespace {

// Ops that keep less for the backward pass count as the ops that they replace: layers that only
// differ in that are equal.
std::string_view name_of_replaced(std::string_view name) {
  if (name == "tempo::gelu") return "aten::gelu";
  if (name == "tempo::layer_norm") return "aten::native_layer_norm";
  return name;
}

// They differ in statistics and masks, and in how they allocate these.
bool counts_by_result(std::string_view plain) {
  return plain == "aten::gelu" || plain == "aten::native_layer_norm";
}

// Distances between equal ops that are near each other, the most frequent first; the rest is
// chance. A layer may hold an op several times.
std::vector<std::size_t> likely_periods(std::span<const OpSignature> ops) {
  constexpr std::size_t kNext = 8, kMost = 64;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> positions;  // by hash
  std::map<std::size_t, std::size_t> counts;                              // by period
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::vector<std::size_t>& seen = positions[ops[i].hash];
    const std::size_t from = seen.size() - std::min(seen.size(), kNext);
    for (std::size_t k = from; k < seen.size(); ++k) ++counts[i - seen[k]];
    seen.push_back(i);
  }
  std::vector<std::pair<std::size_t, std::size_t>> order(counts.begin(), counts.end());
  std::ranges::stable_sort(order, std::greater{}, &std::pair<std::size_t, std::size_t>::second);
  std::vector<std::size_t> periods;
  for (const auto& [period, count] : order) {
    if (periods.size() < kMost) periods.push_back(period);
  }
  return periods;
}

// Covers most; of equals the one with the shortest period.
Repetition longest_repetition(std::span<const OpSignature> ops) {
  std::vector<std::size_t> products = {0};  // before each op
  for (const OpSignature& op : ops) products.push_back(products.back() + op.multiplies);
  Repetition best;
  for (const std::size_t period : likely_periods(ops)) {
    std::size_t equal = 0;
    for (std::size_t i = period; i < ops.size(); ++i) {
      equal = ops[i].hash == ops[i - period].hash ? equal + 1 : 0;
      const Repetition run{
          .begin = i + 1 - equal - period, .length = equal + period, .period = period};
      const bool repeats = equal >= period && products[run.begin + period] > products[run.begin];
      const bool better =
          run.length > best.length || (run.length == best.length && run.period < best.period);
      if (repeats && better) best = run;
    }
  }
  return best;
}

void add_repetitions(std::span<const OpSignature> ops, std::size_t offset,
                     std::vector<Repetition>& found) {
  Repetition best = longest_repetition(ops);
  if (best.length == 0) return;
  const std::size_t end = best.begin + best.length;
  add_repetitions(ops.first(best.begin), offset, found);
  best.begin += offset;
  found.push_back(best);
  add_repetitions(ops.subspan(end), offset + end, found);
}

// Begin of the layer that ends before op `begin` and has all ops of the following layer, in that
// order, and some more, at most a quarter (T5's first decoder layer makes a position bias for all
// others); `begin`: there is none. Matches from the end.
std::size_t longer_layer_before(const std::vector<OpSignature>& ops, std::size_t begin,
                                std::size_t period) {
  std::size_t at = begin, left = period, more = 0;
  while (at > 0 && left > 0 && more <= period / 4) {
    --at;
    if (ops[at].hash == ops[begin + left - 1].hash) {
      --left;
    } else {
      ++more;
    }
  }
  return left == 0 ? at : begin;
}

// The children of that node under which most of the forward pass is.
Trees forward_ops(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  const std::int32_t end = forward_end(step.backward());
  std::unordered_map<std::int32_t, Trees> by_parent;
  for (std::int32_t i = 0; i < end; ++i) {
    const Node& node = graph.node(i);
    if (node.is_structural || node.parent < 0 || !graph.node(node.parent).is_label) continue;
    by_parent[node.parent].push_back(i);
  }
  Trees most;
  for (auto& [parent, ops] : by_parent) {
    const bool first = ops.size() == most.size() && ops.front() < most.front();
    if (ops.size() > most.size() || first) most = std::move(ops);
  }
  return most;
}

class LayerCutter {
 public:
  LayerCutter(const StepView& step, const SegmentReader& segments)
      : graph_(step.graph()), segments_(segments), ops_(forward_ops(step)) {
    for (const std::int32_t op : ops_) signatures_.push_back(op_signature(graph_, op));
  }

  Result<std::vector<LayerStack>> cut() {
    std::vector<LayerStack> stacks;
    std::optional<Error> reason;
    for (const Repetition& run : repetitions(signatures_)) {
      auto stack = cut_run(run);
      if (stack) {
        stacks.push_back(std::move(*stack));
      } else if (!reason) {
        reason = stack.error();
      }
    }
    if (!stacks.empty()) return stacks;
    if (reason) return Unexpected{*reason};
    return fail(ErrorCode::kImpossible,
                "expected layers that repeat in the forward pass, found none");
  }

 private:
  Trees trees(std::size_t begin, std::size_t end) const {
    return {ops_.begin() + static_cast<std::ptrdiff_t>(begin),
            ops_.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  // A layer may begin anywhere in the period; the first place that makes most layers is taken. The
  // first of all layers may be none: its input has no gradient.
  Result<LayerStack> cut_run(const Repetition& run) {
    LayerStack most;
    std::optional<Error> reason;
    std::size_t end = 0;
    for (std::size_t shift = 0; shift + run.period <= run.length; ++shift) {
      if (shift == 2 * run.period || (shift == run.period && !most.empty())) break;
      const std::size_t begin = run.begin + shift, count = (run.length - shift) / run.period;
      auto stack = cut_at(begin, run.period, count);
      if (!stack) {
        if (!reason) reason = stack.error();
      } else if (stack->size() > most.size()) {
        most = std::move(*stack);
        end = begin + count * run.period;
      }
    }
    if (most.empty()) return Unexpected{*reason};
    last_end_ = end;
    return most;
  }

  // The three projections of an attention do not take each other's results.
  Result<LayerStack> cut_at(std::size_t begin, std::size_t period, std::size_t count) const {
    PERFMODEL_TRY(first, segments_.read(trees(begin, begin + period)));
    LayerStack stack;
    const std::size_t before = longer_layer_before(signatures_, begin, period);
    if (before < begin && before >= last_end_ && follows(*first, trees(before, begin))) {
      stack.push_back(trees(before, begin));
    }
    for (std::size_t k = 0; k < count; ++k) {
      stack.push_back(trees(begin + k * period, begin + (k + 1) * period));
    }
    PERFMODEL_TRY(last, segments_.read(stack.back()));
    if (stack.size() > 1 && (count == 1 || follows(*last, stack[stack.size() - 2]))) return stack;
    return fail(ErrorCode::kImpossible,
                fmt::format("expected layers that take what the layer before them gives, found "
                            "others after {}",
                            describe(graph_, *first)));
  }

  bool follows(const Segment& next, Trees before) const {
    const auto segment = segments_.read(std::move(before));
    return segment && std::ranges::any_of(next.inputs, [&](std::uint32_t input) {
             return graph_.tensors[input].id == graph_.tensors[segment->output].id;
           });
  }

  const ExecutionGraph& graph_;
  const SegmentReader& segments_;
  Trees ops_;
  std::vector<OpSignature> signatures_;
  std::size_t last_end_ = 0;  // end of the last layer found
};

}  // namespace

OpSignature op_signature(const ExecutionGraph& graph, std::int32_t op) {
  const Node& node = graph.node(op);
  // Names of regions tell their number: "layer 3".
  const std::string_view name = name_of_replaced(graph.name(node));
  OpSignature signature{
      .hash = node.is_label ? 1 : std::hash<std::string_view>{}(name),
      .multiplies = is_matrix_product(name) || name == "aten::convolution",
  };
  const auto mix = [&signature](auto value) {
    signature.hash = hash_mix(signature.hash, static_cast<std::uint64_t>(value));
  };
  auto outputs = graph.outputs(node);
  if (counts_by_result(name)) outputs = outputs.first(std::min<std::size_t>(1, outputs.size()));
  for (const auto arguments : {graph.inputs(node), outputs}) {
    for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
      mix(tensor.dtype);
      mix(tensor.rank);
      for (const std::int64_t size : graph.shape(tensor)) mix(size);
    });
  }
  if (counts_by_result(name)) return signature;
  for (const std::int32_t child : graph.children(node)) {
    const OpSignature below = op_signature(graph, child);
    mix(below.hash);
    signature.multiplies |= below.multiplies;
  }
  return signature;
}

std::vector<Repetition> repetitions(const std::vector<OpSignature>& ops) {
  std::vector<Repetition> found;
  add_repetitions(ops, 0, found);
  return found;
}

Result<std::vector<LayerStack>> layers(const StepView& step, const SegmentReader& segments) {
  return LayerCutter(step, segments).cut();
}

}  // namespace perfmodel
