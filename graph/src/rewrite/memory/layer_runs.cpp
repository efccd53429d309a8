#include "layer_runs.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {
namespace {

bool multiplies(std::string_view name) {
  return is_matrix_product(name) || name == "aten::convolution";
}

// Ops that keep less for the backward pass count as those in whose place they stand: layers that
// differ in that alone are equal.
std::string_view plain_name(std::string_view name) {
  if (name == "tempo::gelu") return "aten::gelu";
  if (name == "tempo::layer_norm") return "aten::native_layer_norm";
  return name;
}

// They differ in statistics and masks, and in how they allocate these.
bool counts_by_result(std::string_view plain) {
  return plain == "aten::gelu" || plain == "aten::native_layer_norm";
}

class Runs {
 public:
  explicit Runs(const std::vector<OpSignature>& ops) {
    for (const OpSignature& op : ops) {
      hashes_.push_back(op.hash);
      products_.push_back(products_.back() + op.multiplies);
    }
  }

  std::vector<LayerRun> find() {
    search(0, hashes_.size());
    return std::move(found_);
  }

 private:
  void search(std::size_t begin, std::size_t end) {
    const LayerRun best = longest(begin, end);
    if (best.length == 0) return;
    search(begin, best.begin);
    found_.push_back(best);
    search(best.begin + best.length, end);
  }

  // Distances between equal ops that stand near each other. A layer may hold an op several times.
  std::vector<std::size_t> periods(std::size_t begin, std::size_t end) const {
    constexpr std::size_t kNext = 8;
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> seen;
    std::vector<std::size_t> found;
    for (std::size_t i = begin; i < end; ++i) {
      std::vector<std::size_t>& places = seen[hashes_[i]];
      const std::size_t from = places.size() - std::min(places.size(), kNext);
      for (std::size_t k = from; k < places.size(); ++k) found.push_back(i - places[k]);
      places.push_back(i);
    }
    // Most frequent first; the rest is chance.
    std::sort(found.begin(), found.end());
    std::vector<std::pair<std::size_t, std::size_t>> counts;  // negative order by count
    for (std::size_t period : found) {
      if (counts.empty() || counts.back().second != period) counts.emplace_back(0, period);
      ++counts.back().first;
    }
    std::stable_sort(counts.begin(), counts.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    constexpr std::size_t kMost = 64;
    found.clear();
    for (const auto& [count, period] : counts) {
      if (found.size() < kMost) found.push_back(period);
    }
    return found;
  }

  // Covers most; of equals the one with the shortest period.
  LayerRun longest(std::size_t begin, std::size_t end) const {
    LayerRun best;
    for (std::size_t period : periods(begin, end)) {
      std::size_t equal = 0;
      for (std::size_t i = begin + period; i < end; ++i) {
        equal = hashes_[i] == hashes_[i - period] ? equal + 1 : 0;
        const LayerRun run{
            .begin = i + 1 - equal - period, .length = equal + period, .period = period};
        const bool layers = equal >= period && products(run.begin, period) > 0;
        const bool better =
            run.length > best.length || (run.length == best.length && run.period < best.period);
        if (layers && better) best = run;
      }
    }
    return best;
  }

  std::size_t products(std::size_t begin, std::size_t count) const {
    return products_[begin + count] - products_[begin];
  }

  std::vector<std::uint64_t> hashes_;
  std::vector<std::size_t> products_ = {0};  // in front of each op
  std::vector<LayerRun> found_;
};

}  // namespace

OpSignature op_signature(const ExecutionGraph& graph, std::int32_t op) {
  const Node& node = graph.node(op);
  // Names of regions tell their number: "layer 3".
  const std::string_view name = plain_name(graph.name(node));
  OpSignature made{.hash = node.is_label ? 1 : std::hash<std::string_view>{}(name),
                   .multiplies = multiplies(name)};
  const auto mix = [&made](auto value) {
    made.hash = hash_mix(made.hash, static_cast<std::uint64_t>(value));
  };
  auto outputs = graph.outputs(node);
  if (counts_by_result(name)) outputs = outputs.first(std::min<std::size_t>(1, outputs.size()));
  for (const auto arguments : {graph.inputs(node), outputs}) {
    for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
      mix(tensor.dtype);
      mix(tensor.rank);
      for (std::int64_t size : graph.shape(tensor)) mix(size);
    });
  }
  if (counts_by_result(name)) return made;
  for (std::int32_t child : graph.children(node)) {
    const OpSignature below = op_signature(graph, child);
    mix(below.hash);
    made.multiplies |= below.multiplies;
  }
  return made;
}

std::vector<LayerRun> layer_runs(const std::vector<OpSignature>& ops) { return Runs(ops).find(); }

// Matches from the end; an op that the layer has not is passed over.
std::size_t longer_layer_before(const std::vector<OpSignature>& ops, std::size_t begin,
                                std::size_t period, std::size_t end) {
  const std::size_t most = period / 4;
  std::size_t at = end, left = period, more = 0;
  while (at > 0 && left > 0 && more <= most) {
    --at;
    if (ops[at].hash == ops[begin + left - 1].hash) {
      --left;
    } else {
      ++more;
    }
  }
  return left == 0 ? at : end;
}

}  // namespace perfmodel
